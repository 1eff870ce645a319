// What attention kernels with keys and values in swizzled tiles of shared memory have in common: 64 query rows a
// warpgroup against a ring of stages of S::keys keys. A tile is 64 columns (128 bytes, the swizzle's width) of all
// rows.
//   S::keys, S::stages        keys of a stage, stages
//   S::k_tiles, S::v_tiles    tiles of a query or key, and of a value
//   S::Shared                 q (a warpgroup's after the other), k[stages], v[stages] and their barriers
#pragma once

#include <cuda_bf16.h>

#include "kernels/sm90/hopper.h"

namespace medley::sm90 {

constexpr int rows_of_group = 64;  // query rows of a warpgroup: the M of the matrix instruction
constexpr int query_tile_bytes = rows_of_group * 128;
constexpr unsigned full_warp = 0xffffffffu;

// exp2f adds four instructions for denormal results.
__device__ inline float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(full_warp, value, 1));
  return fmaxf(value, __shfl_xor_sync(full_warp, value, 2));
}
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(full_warp, value, 1);
  return value + __shfl_xor_sync(full_warp, value, 2);
}

// A thread's accumulators belong to two rows: elements 4j, 4j + 1 to row g, 4j + 2, 4j + 3 to row g + 8 of its warp.
struct Softmax {
  float highest[2] = {-INFINITY, -INFINITY};  // what weights are relative to: a maximum, up to rescale_above behind
  float total[2] = {0, 0};                    // of this thread's own columns
  int low[2], limit[2];                       // keys seen
};

// A row's weights may grow to 2^8 before its sums are brought to the new maximum. Decided by each row for itself.
constexpr float rescale_above = 8;

// Scores to weights, packed as the next product takes them. Returns by what the sums must be scaled.
template <int n>
__device__ void weigh(float scale_log2, int first, Softmax& softmax, float (&scores)[n], uint32_t (&weights)[n / 8][4],
                      float (&rescale)[2]) {
  const int quad = threadIdx.x % 4;
  if (first + 2 * n > min(softmax.limit[0], softmax.limit[1]) || first < max(softmax.low[0], softmax.low[1])) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
      const int key = first + i / 4 * 8 + quad * 2 + i % 2;
      if (key >= softmax.limit[i / 2 % 2] || key < softmax.low[i / 2 % 2]) scores[i] = -INFINITY;
    }
  }
  float highest[2] = {-INFINITY, -INFINITY}, base[2];
#pragma unroll
  for (int i = 0; i < n; ++i) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float now = quad_max(highest[half]) * scale_log2, before = softmax.highest[half];
    if (now > before + rescale_above) softmax.highest[half] = now;
    base[half] = softmax.highest[half] == -INFINITY ? 0.0f : softmax.highest[half];  // none seen: weights exp2(-inf)
    rescale[half] = exp2(before - base[half]);
    softmax.total[half] = __fmul_rn(softmax.total[half], rescale[half]);  // not fused: a row is the same in either half
  }
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    const int half = i / 2 % 2;
    const float x = exp2(fmaf(scores[i], scale_log2, -base[half])),
                y = exp2(fmaf(scores[i + 1], scale_log2, -base[half]));
    softmax.total[half] = __fadd_rn(softmax.total[half], __fadd_rn(x, y));
    const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    memcpy(&weights[i / 8][i / 2 % 4], &two, 4);
  }
}

// Starts scores[64 queries x keys].
template <class S, int n>
__device__ void multiply_keys(typename S::Shared& shared, int group, int stage, uint32_t phase, float (&scores)[n]) {
  const uint64_t q = operand(shared_address(shared.q + group * S::k_tiles * query_tile_bytes)),
                 k = operand(shared_address(shared.k[stage]));
  barrier_wait(&shared.k_full[stage], phase);
  hold(scores);
  wgmma_begin();
#pragma unroll
  for (int step = 0; step < S::k_tiles * 4; ++step)
    wgmma_scores(scores, q + (uint64_t(step / 4 * query_tile_bytes + step % 4 * 32) >> 4),
                 k + (uint64_t(step / 4 * S::key_tile_bytes + step % 4 * 32) >> 4), step);
  wgmma_commit();
}

template <class S, int n, int m>
__device__ void add_values(typename S::Shared& shared, int stage, const uint32_t (&weights)[m][4], float (&out)[n]) {
  const uint64_t v = operand(shared_address(shared.v[stage]), S::key_tile_bytes);
#pragma unroll
  for (int step = 0; step < m; ++step) wgmma_values(out, weights[step], v + (step * 16 * 128 >> 4));
  wgmma_commit();
}

// Rows of the values that no query sees may hold anything, also NaN, and 0 * NaN is NaN.
template <class S>
__device__ void clear_values(std::byte* values, int from) {
  const int pieces = (S::keys - from) * 8;  // of 16 bytes, per tile
  for (int item = threadIdx.x % 128; item < pieces * S::v_tiles; item += 128)
    *reinterpret_cast<uint4*>(values + item / pieces * S::key_tile_bytes + from * 128 + item % pieces * 16) =
        make_uint4(0, 0, 0, 0);
}

// A warpgroup's query rows as bf16, swizzled; zeros past the last.
// `row_at(r)`: f32, 16 bytes aligned.
template <class S, class RowAt>
__device__ void load_queries(std::byte* to, int count, RowAt row_at) {
  constexpr int fours = S::k_tiles * 16, at_once = 4;
  for (int item = threadIdx.x % 128; item < rows_of_group * fours; item += 128 * at_once) {
    float4 values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int row = (item + i * 128) / fours, four = (item + i * 128) % fours;
      values[i] = make_float4(0, 0, 0, 0);
      if (row < count) values[i] = __ldg(reinterpret_cast<const float4*>(row_at(row)) + four);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int row = (item + i * 128) / fours, four = (item + i * 128) % fours;
      const __nv_bfloat162 low = __floats2bfloat162_rn(values[i].x, values[i].y),
                           high = __floats2bfloat162_rn(values[i].z, values[i].w);
      uint2 bits;
      memcpy(&bits.x, &low, 4);
      memcpy(&bits.y, &high, 4);
      std::byte* at = to + four / 16 * query_tile_bytes + row * 128 + ((four % 16 / 2) ^ (row % 8)) * 16;
      *reinterpret_cast<uint2*>(at + four % 2 * 8) = bits;
    }
  }
  fence_async_proxy();
  named_sync(1 + threadIdx.x / 128, 128);
}

// A warpgroup walks keys [begin, end) in whole stages: scores, weights, sums of values.
template <class S, int n>
__device__ void walk(typename S::Shared& shared, int group, float scale_log2, int begin, int end, Softmax& softmax,
                     float (&out)[n]) {
  const int lane = threadIdx.x % 32;
  float scores[S::keys / 2] = {};
  uint32_t weights[S::keys / 16][4];
  int stage = 0, first = begin;
  uint32_t phase = 0;
  const auto finish_scores = [&] {
    float rescale[2];
    if (lane == 0) barrier_arrive(&shared.k_empty[stage]);
    weigh(scale_log2, first, softmax, scores, weights, rescale);
    if (__any_sync(full_warp, rescale[0] != 1.0f || rescale[1] != 1.0f)) {  // else products with 1
#pragma unroll
      for (int i = 0; i < n; ++i) out[i] *= rescale[i / 2 % 2];
    }
    barrier_wait(&shared.v_full[stage], phase);
    if (first + S::keys > end) {
      clear_values<S>(shared.v[stage], end - first);
      fence_async_proxy();
      named_sync(1 + group, 128);
    }
    hold(out);
    wgmma_begin();
  };
  multiply_keys<S>(shared, group, stage, phase, scores);
  wgmma_wait<0>();
  hold(scores);
  for (; first + S::keys < end; first += S::keys) {
    finish_scores();
    add_values<S>(shared, stage, weights, out);
    const int next = stage + 1 == S::stages ? 0 : stage + 1;
    const uint32_t next_phase = next == 0 ? phase ^ 1 : phase;
    // The next scores queue up behind: the other warpgroup's weights are computed meanwhile.
    multiply_keys<S>(shared, group, next, next_phase, scores);
    wgmma_wait<1>();
    hold(out);
    if (lane == 0) barrier_arrive(&shared.v_empty[stage]);
    wgmma_wait<0>();
    hold(scores);
    stage = next, phase = next_phase;
  }
  finish_scores();
  add_values<S>(shared, stage, weights, out);
  wgmma_wait<0>();
  hold(out);
}

// By one thread, before __syncthreads().
template <class S>
__device__ void init_barriers(typename S::Shared& shared) {
  for (int stage = 0; stage < S::stages; ++stage) {
    barrier_init(&shared.k_full[stage], 1);
    barrier_init(&shared.v_full[stage], 1);
    barrier_init(&shared.k_empty[stage], S::consumers / 32);
    barrier_init(&shared.v_empty[stage], S::consumers / 32);
  }
  fence_barrier_init();
}

}  // namespace medley::sm90
