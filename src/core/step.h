// Step: a StepPlan as the model's layers see it, device views in the runner's buffers. Filled by the ModelRunner.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace medley {

// One cache group in this step. `base` is the arena's first byte; row numbers as in kv_cache_spec.h.
struct StepGroup {
  std::byte* base = nullptr;
  // paged
  TensorView block_table;   // i32 [rows, max_blocks], row number of each block's first row at the group's first layer
  TensorView slot_mapping;  // i64 [tokens], row number each new token is written to at the first layer; -1: not written
  int32_t tokens_per_block = 0;
  int64_t row_bytes = 0;
  // state
  TensorView state_in;   // i32 [layers, rows], in units of state_granule bytes; -1: the zero state
  TensorView state_out;  // i32 [layers, rows]; -1: not written (padding)
};

// A row's shape, on the host: what picks between code paths. Depends on the row alone, never on the batch.
struct StepRow {
  int32_t first_token = 0;
  int32_t new_tokens = 0;
  int32_t computed = 0;
};

struct Step {
  int64_t num_tokens = 0;
  int64_t num_rows = 0;
  std::vector<StepRow> rows;  // host copy of row_offsets and computed; a padded step's pads follow as rows of one token
  int64_t launch_context = 0;  // launches are made for contexts of this length, if no row's is longer
  TensorView token_ids;        // i32 [tokens]
  TensorView positions;        // i32 [tokens]
  TensorView row_offsets;      // i32 [rows + 1]
  TensorView computed;         // i32 [rows]
  TensorView logits_tokens;    // i32 [n], the tokens whose logits are wanted, ascending
  std::vector<StepGroup> groups;
};

}  // namespace medley
