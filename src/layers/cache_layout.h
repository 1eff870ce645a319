// Where a layer's rows or state lie: layers with equal needs share a cache group.
#pragma once

#include <vector>

#include "core/kv_cache_spec.h"
#include "core/step.h"
#include "kernels/exec_context.h"
#include "kernels/rows.h"

namespace medley {

// A layer's place: which group, and which of its layers.
struct CachePlace {
  int group = 0;
  int32_t layer = 0;
};

class CacheLayout {
 public:
  explicit CacheLayout(int32_t tokens_per_block) : tokens_per_block_(tokens_per_block) {}

  // A layer's rows of `row_bytes` a token; window 0: all tokens are kept.
  CachePlace add_paged(const std::string& name, int64_t row_bytes, int32_t window, const std::string& shape);
  CachePlace add_state(const std::string& name, int64_t bytes, const std::string& shape);

  const std::vector<KvCacheSpec>& specs() const { return specs_; }

 private:
  CachePlace add(const KvCacheSpec& spec);

  int32_t tokens_per_block_;
  std::vector<KvCacheSpec> specs_;
};

// The step as kernels see it, for the layer at `place`.
RaggedRows ragged_rows(const Step& step);
// Rows [first_row, first_row + rows) alone: their tokens are numbered from 0.
RaggedRows ragged_rows(const Step& step, int64_t first_row, int64_t rows, ExecContext& exec);
PagedCache paged_cache(const Step& step, CachePlace place, DType dtype);
StateSlots state_slots(const Step& step, CachePlace place, int64_t offset_bytes = 0);

}  // namespace medley
