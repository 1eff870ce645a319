// The lightning indexer (DeepSeek-V3.2, section 2.1): small heads of its own, over a key cache of its own, score every
// token of the context; attention then runs over the top_k best.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/norm.h"
#include "kernels/sparse_attention.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/parameter.h"
#include "layers/rope.h"

namespace medley {

struct IndexerSpec {
  std::string prefix;  // "model.layers.0.self_attn.indexer."
  int64_t hidden = 0, q_in = 0;
  int64_t heads = 0, head_dim = 0;
  int64_t top_k = 0;
  int rope = 0;  // which of the model's ropes; it rotates the first dimensions of a head
};

// Whole on every rank: which keys a query sees must not depend on the rank.
class Indexer {
 public:
  Indexer(LoadContext& context, const IndexerSpec& spec, CacheLayout& cache);

  // Writes the keys of the step's tokens, then selects: i32 [tokens, min(top_k, longest context)], ascending positions
  // and then -1. x [tokens, hidden] and the low-rank query q_low [tokens, q_in], both of the model's dtype.
  TensorView select(const Step& step, const TensorView& x, const TensorView& q_low, std::span<const StepRope> ropes,
                    ExecContext& exec) const;

  int64_t top_k() const { return spec_.top_k; }

 private:
  IndexerSpec spec_;
  DType dtype_;
  CachePlace place_;
  Linear q_, k_, head_weights_;
  Parameter k_norm_weight_, k_norm_bias_;
  Kernel<LayerNormArgs> k_norm_;
  Kernel<CacheWriteArgs> write_;
  Kernel<IndexSelectArgs> select_;
};

}  // namespace medley
