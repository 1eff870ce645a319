// Where a row's new tokens lie in the step, and its state before and after them.
#pragma once

#include "core/kv_cache_spec.h"
#include "kernels/rows.h"

namespace medley {

struct StateRow {
  int64_t begin, end;  // tokens of the step
  const float* read;   // state before; null: zero
  float* write;        // state after; null: not written
};

inline StateRow state_row(const RaggedRows& rows, const StateSlots& state, int64_t row) {
  const auto at = [&](int32_t index) -> float* {
    if (index < 0) return nullptr;
    return reinterpret_cast<float*>(state.base + int64_t(index) * state_granule + state.offset_bytes);
  };
  const int32_t* offsets = rows.row_offsets.as<int32_t>();
  return {offsets[row], offsets[row + 1], at(state.read[row]), at(state.write[row])};
}

}  // namespace medley
