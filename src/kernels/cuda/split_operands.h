// Float32 operands for matrix instructions that take f16: two halves each (22 bits), scaled by a power of two such that
// the largest lies in [2^13, 2^14); one 2^24 times smaller is still held to 2^-14 of itself.
#pragma once

#include <cstring>

#include "kernels/cuda/common.h"

namespace medley::cuda {

constexpr unsigned all = 0xffffffffu;  // lanes

__device__ inline void copy_sixteen(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
__device__ inline void multiply(float (&d)[4], uint4 a, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// Magnitudes as bits, which order as the floats do.
__device__ inline uint32_t magnitude(float value) {
  return __float_as_uint(value) & 0x7fffffffu;
}
__device__ inline uint32_t magnitude(float4 v) {
  return max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
}
// The block's largest; every thread gets it. `memory` is shared, and used once.
template <int warps>
__device__ uint32_t block_largest(uint32_t own, uint32_t (&memory)[warps]) {
  own = __reduce_max_sync(all, own);
  if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = own;
  __syncthreads();
  for (int w = 0; w < warps; ++w) own = max(own, memory[w]);
  return own;
}
// e such that the largest times 2^e lies in [2^13, 2^14); kept where products of four such powers are finite.
__device__ inline int exponent_for(uint32_t largest) {
  return min(max(13 + 127 - int(largest >> 23), -60), 60);
}
__device__ inline float power_of_two(int exponent) {
  return __int_as_float((exponent + 127) << 23);
}
// Two floats as halves, and what the halves leave.
__device__ inline void split(float x, float y, uint32_t& high, uint32_t& low) {
  const __half2 rounded = __floats2half2_rn(x, y);
  const float2 back = __half22float2(rounded);
  const __half2 rest = __floats2half2_rn(x - back.x, y - back.y);
  memcpy(&high, &rounded, 4);
  memcpy(&low, &rest, 4);
}
__device__ inline float4 scaled(float4 v, float by) {
  return make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
}
__device__ inline float4 load_four(const float* from, bool used) {
  return used ? __ldg(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
}

}  // namespace medley::cuda
