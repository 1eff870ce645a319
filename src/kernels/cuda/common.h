// What the CUDA kernels share: loads of any float type, reductions in a fixed order, launches that report their errors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <string>
#include <type_traits>

#include "kernels/exec_context.h"
#include "tensor/tensor.h"

namespace medley::cuda {

__device__ inline float to_float(float value) {
  return value;
}
__device__ inline float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float to_float(__half value) {
  return __half2float(value);
}
__device__ inline void store(float* to, float value) {
  *to = value;
}
__device__ inline void store(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}

__device__ inline void store_four(float* to, const float (&value)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
}
__device__ inline void store_four(__nv_bfloat16* to, const float (&value)[4]) {
  const __nv_bfloat162 two[2] = {__floats2bfloat162_rn(value[0], value[1]), __floats2bfloat162_rn(value[2], value[3])};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(two);
}

__device__ inline float silu(float x) {
  return x / (1.0f + expf(-x));
}
__device__ inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}
__device__ inline float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

// Sums over a warp; every lane gets the same bits.
__device__ inline float warp_sum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// The row that a token of the step belongs to: the last one that starts at or before it (empty rows share their start).
__device__ inline int row_of(const int32_t* row_offsets, int num_rows, int token) {
  int low = 0, high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (row_offsets[middle] <= token) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The same by a warp together: loads that do not wait for each other.
__device__ inline int warp_row_of(const int32_t* row_offsets, int num_rows, int token) {
  int starts = 0;
  for (int row = threadIdx.x % 32; row < num_rows; row += 32) starts += row_offsets[row] <= token;
  return int(__reduce_add_sync(0xffffffffu, unsigned(starts))) - 1;
}

inline void check_launch(const char* op) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) fail("[{}] CUDA: {}", op, cudaGetErrorString(status));
}

inline cudaStream_t stream_of(const ExecContext& context) {
  return static_cast<cudaStream_t>(context.stream);
}

// Pointers into a view as the device's types; the op's check has seen the dtype.
template <class T>
T* data_of(const TensorView& view) {
  return static_cast<T*>(view.data);
}

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return unsigned((items + per_block - 1) / per_block);
}

// Calls f with a null pointer of the device's type for the dtype.
template <class F>
void with_float_type(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(static_cast<float*>(nullptr));
  if (dtype == DType::bf16) return f(static_cast<__nv_bfloat16*>(nullptr));
  MEDLEY_CHECK(!"f32 or bf16");
}
template <class F>
void with_weight_type(DType dtype, F&& f) {
  if (dtype == DType::f16) return f(static_cast<__half*>(nullptr));
  with_float_type(dtype, f);
}

template <class Desc>
std::string no_blocks(const Desc& desc) {
  return is_block(desc.weight) ? "takes f32, bf16 or f16 weights" : "";
}
template <class Desc>
std::string any(const Desc&) {
  return {};
}

}  // namespace medley::cuda
