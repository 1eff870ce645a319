// The ragged rows of a step as kernels see them, and where a layer's cache lies.
#pragma once

#include "kernels/exec_context.h"
#include "tensor/tensor.h"

namespace medley {

// Row r's new tokens are [row_offsets[r], row_offsets[r + 1]) of the step; before them it has computed[r] tokens in
// the cache. New token i of the row stands at position computed[r] + i.
struct RaggedRows {
  TensorView row_offsets;  // i32 [rows + 1]
  TensorView computed;     // i32 [rows]
  int64_t num_rows = 0;
  int64_t num_tokens = 0;
  int64_t max_new_tokens = 0;  // launch sizes only: no result depends on them
  int64_t max_context = 0;     // largest computed + new tokens
};

// y[i] = offsets[i] - offsets[0]: the row offsets of a part of a step whose tokens are numbered from 0. Both i32 [n].
void rebase_offsets(const TensorView& offsets, const TensorView& y, ExecContext& exec);
namespace cuda {
void rebase_offsets(const TensorView& offsets, const TensorView& y, ExecContext& exec);
}

// One layer's rows of a paged group: token t of row r lies at
//   base + (block_table[r][t / tokens_per_block] + t % tokens_per_block) * row_bytes
// `base` already points at the layer's rows inside the first page.
struct PagedCache {
  std::byte* base = nullptr;
  DType dtype = DType::bf16;
  int64_t row_bytes = 0;
  int32_t tokens_per_block = 0;
  TensorView block_table;   // i32 [rows, max_blocks]; -1: dropped, never read
  TensorView slot_mapping;  // i64 [tokens]: row number of each new token; -1: not written
};

// One layer's states of the rows: at base + index * state_granule + offset_bytes, float32.
struct StateSlots {
  std::byte* base = nullptr;
  const int32_t* read = nullptr;   // [rows]; -1: the zero state
  const int32_t* write = nullptr;  // [rows]; -1: not written
  int64_t offset_bytes = 0;        // of this op's part inside a layer's state
};

}  // namespace medley
