// The block of arithmetic that attention and sparse attention share: no matrix instructions, any head size up to 512,
// any dtype. A block of threads holds up to eight query rows that share their keys, walks the keys in tiles of 32 and
// keeps a running maximum and sum in float32. K is read along a warp, V along the block.
#pragma once

#include "kernels/cuda/common.h"

namespace medley::cuda::attention {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int max_rows = 8;  // one warp a row in the softmax
static_assert(max_rows <= warps);
constexpr int tile = 32;  // keys, one lane each in the softmax
constexpr int64_t largest_v = 512;
constexpr int v_per_thread = largest_v / threads;

// What a block attends with; `rows` query rows of k_dim floats lie in shared memory.
struct Rows {
  int rows = 0;
  float scale = 1, softcap = 0;
  int64_t begin = 0, end = 0;  // keys any row sees
  int64_t last_seen_step = 0;  // row r sees keys up to last_seen + r * last_seen_step
  int64_t last_seen = 0;
};

struct Result {
  float sum[max_rows][v_per_thread];  // of the values, weighted; thread i holds elements i, i + threads
};

struct Shared {
  float scores[max_rows][tile];
  float highest[max_rows], total[max_rows], rescale[max_rows];
};

// Keys: float operator()(key, d), one element; `dot_dims` of them. Values likewise.
template <class Key, class Value>
__device__ void attend(const Rows& a, const float* q, int64_t k_dim, int64_t v_dim, Key key_at, Value value_at,
                       Shared& shared, Result& result) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int r = 0; r < max_rows; ++r)
    for (int j = 0; j < v_per_thread; ++j) result.sum[r][j] = 0;

  for (int64_t first = a.begin; first < a.end; first += tile) {
    for (int k = warp; k < tile; k += warps) {
      const int64_t key = first + k;
      float dots[max_rows] = {};
      if (key < a.end) {
        for (int64_t d = lane; d < k_dim; d += 32) {
          const float value = key_at(key, d);
#pragma unroll
          for (int r = 0; r < max_rows; ++r)
            if (r < a.rows) dots[r] += q[r * k_dim + d] * value;
        }
      }
#pragma unroll
      for (int r = 0; r < max_rows; ++r) {
        if (r >= a.rows) break;
        float score = warp_sum(dots[r]) * a.scale;
        if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
        const bool seen = key < a.end && key <= a.last_seen + r * a.last_seen_step;
        if (lane == 0) shared.scores[r][k] = seen ? score : -INFINITY;
      }
    }
    __syncthreads();
    if (warp < a.rows) {
      const float score = shared.scores[warp][lane];
      const float before = shared.highest[warp];
      const float highest = fmaxf(before, warp_max(score));
      const float base = highest == -INFINITY ? 0.0f : highest;  // nothing seen yet: every weight is 0
      const float weight = expf(score - base);
      const float rescale = expf(before - base);
      const float total = warp_sum(weight);
      shared.scores[warp][lane] = weight;
      __syncwarp();  // every lane has read what was the highest
      if (lane == 0) {
        shared.highest[warp] = highest;
        shared.rescale[warp] = rescale;
        shared.total[warp] = shared.total[warp] * rescale + total;
      }
    }
    __syncthreads();
    const int keys = int(min(int64_t(tile), a.end - first));
#pragma unroll
    for (int j = 0; j < v_per_thread; ++j) {
      const int64_t d = threadIdx.x + j * threads;
      if (d >= v_dim) break;
#pragma unroll
      for (int r = 0; r < max_rows; ++r) result.sum[r][j] *= r < a.rows ? shared.rescale[r] : 0.0f;
      for (int k = 0; k < keys; ++k) {
        const float value = value_at(first + k, d);
#pragma unroll
        for (int r = 0; r < max_rows; ++r)
          if (r < a.rows) result.sum[r][j] += shared.scores[r][k] * value;
      }
    }
    __syncthreads();
  }
}

}  // namespace medley::cuda::attention
