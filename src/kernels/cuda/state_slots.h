// Where the rows' states lie, for kernels.
#pragma once

#include "core/kv_cache_spec.h"
#include "kernels/cuda/common.h"
#include "kernels/rows.h"

namespace medley::cuda {

struct States {
  std::byte* base;
  const int32_t *read, *write, *row_offsets;
  int64_t offset;

  __device__ float* at(int32_t index) const {
    return index < 0 ? nullptr : reinterpret_cast<float*>(base + int64_t(index) * state_granule + offset);
  }
};

inline States states_of(const RaggedRows& rows, const StateSlots& state) {
  return {state.base, state.read, state.write, data_of<int32_t>(rows.row_offsets), state.offset_bytes};
}

}  // namespace medley::cuda
