// A tile of a product on Hopper's matrix units: what is multiplied, which part of it a block has at a time, and how its
// sums leave the registers.
#pragma once

#include <algorithm>

#include "kernels/cuda/common.h"
#include "kernels/sm90/hopper.h"

namespace medley::sm90 {

constexpr int k_step = 64;      // of a stage: 128 bytes a row, the swizzle's width
constexpr int row_tile = 64;    // weight rows of an instruction
constexpr int producers = 128;  // one warp copies weights, three gather tokens
constexpr int gatherers = 96;
constexpr int neighbours = 8;  // token tiles that share a pass over the weights

struct Product {
  const __nv_bfloat16* x;  // grouped
  const float* bias;
  void* y;
  int64_t x_stride, y_stride;
  int32_t n, k, tokens, heads, x_head, y_head;
  int32_t row_tiles, token_tiles;  // token_tiles: grouped, of one block
  int32_t slices, slice_steps, steps;
  bool y_bf16, accumulate;
  bool fours;  // y is written four neighbouring outputs at a time
  const int32_t *sorted, *expert_ids, *num_post_padded;
  int32_t x_divisor, block_m;
};

// What a kernel multiplies at a time: `groups` warpgroups x `blocks` x 64 weight rows with n tokens. `alone`: where no
// processor gets two blocks, a longer ring, which still leaves room for a block of the next kernel.
template <int groups_, int blocks_, int n_, bool grouped_, bool sequential_, bool gated_ = false, bool alone_ = false>
struct Shape {
  static constexpr int groups = groups_, blocks = blocks_, n = n_;
  static constexpr bool grouped = grouped_, sequential = sequential_, gated = gated_, alone = alone_;
  static constexpr int rows = groups * blocks * row_tile;
  static constexpr int weight_bytes = rows * 128, token_bytes = n * 128, stage_bytes = weight_bytes + token_bytes;
  static constexpr int consumers = groups * 128, threads = consumers + producers;
  static constexpr int together = groups == 1 ? 2 : 1;  // blocks of a processor
  static constexpr int ring_bytes = (groups == 2 ? 200 : alone ? 120 : 104) * 1024;
  static constexpr int stages = std::min(ring_bytes / stage_bytes, alone ? 13 : 12);
  static_assert(stages >= 3 && stage_bytes % 1024 == 0);
  static constexpr int shared_bytes =
      stages * stage_bytes + 2 * stages * int(sizeof(uint64_t)) + groups * n * int(sizeof(int));
};

// Where a tile lies.
struct Tile {
  int slot, row;    // the matrix, and its first row here
  int token;        // dense: the first token; grouped: the first entry of sorted_token_ids
  int token_count;  // grouped: entries of the block from there on
};

template <class S>
__device__ int tile_count(const Product& a) {
  if constexpr (S::grouped) return *a.num_post_padded / a.block_m * a.token_tiles * a.row_tiles;
  return a.heads * a.token_tiles * a.row_tiles;
}

template <class S>
__device__ Tile tile_at(const Product& a, int index) {
  Tile tile;
  if constexpr (S::grouped) {
    tile.row = index % a.row_tiles * S::rows;
    const int part = index / a.row_tiles % a.token_tiles, block = index / a.row_tiles / a.token_tiles;
    tile.slot = a.expert_ids[block];
    tile.token = block * a.block_m + part * S::n;
    tile.token_count = a.block_m - part * S::n;
  } else {
    const int per_head = a.row_tiles * a.token_tiles;
    tile.slot = index / per_head;
    index %= per_head;
    const int first = index / (a.row_tiles * neighbours) * neighbours, count = min(neighbours, a.token_tiles - first);
    index -= first * a.row_tiles;
    tile.row = index / count * S::rows;
    tile.token = (first + index % count) * S::n;
    tile.token_count = a.tokens - tile.token;
  }
  return tile;
}

// One output.
__device__ inline void write_out(const Product& a, const Tile& tile, int64_t y_row, int column, float value) {
  if (a.bias != nullptr) value += a.bias[tile.slot * a.n + column];
  const int64_t at = y_row * a.y_stride + column;
  if (a.y_bf16) {
    static_cast<__nv_bfloat16*>(a.y)[at] = __float2bfloat16_rn(value);
  } else {
    float* y = static_cast<float*>(a.y) + at;
    *y = a.accumulate ? *y + value : value;
  }
}

// The row of y that the tile's token has, -1 where there is none.
template <class S>
__device__ int y_row_of(const Product& a, const Tile& tile, int token) {
  if (token >= tile.token_count) return -1;
  if constexpr (S::grouped) {
    const int pair = a.sorted[tile.token + token];
    return pair < a.tokens ? pair : -1;
  }
  return tile.token + token;
}

// Lanes r = 0 to 3 of a row of four (lane / 4 % 4) exchange: v[c] becomes lane c's v[r].
__device__ inline void transpose(float (&v)[4]) {
  const bool odd = threadIdx.x & 4, upper = threadIdx.x & 8;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const float other = __shfl_xor_sync(0xffffffffu, odd ? v[i] : v[i + 1], 4);
    (odd ? v[i] : v[i + 1]) = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float other = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + 2], 8);
    (upper ? v[i] : v[i + 2]) = other;
  }
}

// Accumulator i of a thread is weight row g + 8 (i / 2 % 2) of its warp and token 8 (i / 4) + 2 quad + i % 2; block b's
// rows begin `groups` * 64 later. Four lanes exchange what they have of four tokens, so that each writes four
// neighbouring outputs of one. The rows of y lie in shared memory.
template <class S, int blocks, int n>
__device__ void write_fours(const Product& a, const Tile& tile, const int* y_rows, const float (&sums)[blocks][n]) {
  constexpr int apart = S::groups * row_tile;
  const int lane = threadIdx.x % 32, quad = lane % 4, mine = lane / 4 % 4;
  const int row = tile.row + threadIdx.x / 32 * 16 + lane / 16 * 4;
#pragma unroll
  for (int first = 0; first < n; first += 16)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int y_row = y_rows[first * 2 + mine * 8 + quad * 2 + e];
      const int64_t at = y_row * a.y_stride + row;
#pragma unroll
      for (int b = 0; b < blocks; ++b)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int i = first + half * 2 + e;
          float v[4] = {sums[b][i], sums[b][i + 4], sums[b][i + 8], sums[b][i + 12]};
          transpose(v);
          if (y_row < 0) continue;
          if (a.y_bf16) {
            const __nv_bfloat162 low = __floats2bfloat162_rn(v[0], v[1]), high = __floats2bfloat162_rn(v[2], v[3]);
            uint2 bits;
            memcpy(&bits.x, &low, 4);
            memcpy(&bits.y, &high, 4);
            *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(a.y) + at + b * apart + half * 8) = bits;
          } else {
            // Streamed: the weights and tokens that other blocks read again should stay in the L2.
            __stcs(reinterpret_cast<float4*>(static_cast<float*>(a.y) + at + b * apart + half * 8),
                   make_float4(v[0], v[1], v[2], v[3]));
          }
        }
    }
}

// What the sums of a gate's row and up's become, as cuda.grouped_linear and cuda.gated_activation have it.
__device__ inline float gate_of(const Product& a, const Tile& tile, int column, float gate, float up) {
  if (a.bias != nullptr) {
    const float* bias = a.bias + int64_t(tile.slot) * a.n + column;
    gate += bias[0], up += bias[a.n / 2];
  }
  return cuda::silu(gate) * up;
}

// Of a tile of gate and up. Accumulator i and i + 2 are the same output's, i / 2 even; outputs are as the rows above,
// half as many. bf16.
template <class S, int blocks, int n>
__device__ void write_gated(const Product& a, const Tile& tile, const int* y_rows, const float (&sums)[blocks][n]) {
  constexpr int apart = S::groups * row_tile / 2;
  const int lane = threadIdx.x % 32, quad = lane % 4, mine = lane / 4 % 4, width = a.n / 2;
  const int column = tile.row / 2 + threadIdx.x / 32 * 8;
  auto* y = static_cast<__nv_bfloat16*>(a.y);
  if constexpr (n % 16 == 0) {
    if (a.fours && tile.row + S::rows <= a.n) {
#pragma unroll
      for (int first = 0; first < n; first += 16)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int y_row = y_rows[first * 2 + mine * 8 + quad * 2 + e];
          const int64_t at = y_row * a.y_stride + column + lane / 16 * 4;
#pragma unroll
          for (int b = 0; b < blocks; ++b) {
            float v[4];
#pragma unroll
            for (int c = 0; c < 4; ++c)
              v[c] = gate_of(a, tile, column + b * apart + lane / 4, sums[b][first + c * 4 + e],
                             sums[b][first + c * 4 + 2 + e]);
            transpose(v);
            if (y_row >= 0) cuda::store_four(y + at + b * apart, v);
          }
        }
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < n; i += 4)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int y_row = y_rows[i * 2 + quad * 2 + e];
      if (y_row < 0) continue;
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        if (const int at = column + b * apart + lane / 4; at < width)
          y[y_row * a.y_stride + at] = __float2bfloat16_rn(gate_of(a, tile, at, sums[b][i + e], sums[b][i + 2 + e]));
    }
}

template <class S, int blocks, int n>
__device__ void write_tile(const Product& a, const Tile& tile, const int* y_rows, const float (&sums)[blocks][n]) {
  constexpr int apart = S::groups * row_tile;
  if constexpr (n % 16 == 0) {
    if (a.fours && tile.row + S::rows <= a.n) return write_fours<S>(a, tile, y_rows, sums);
  }
  const int row = tile.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < n; i += 4)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int y_row = y_rows[i * 2 + quad * 2 + e];
      if (y_row < 0) continue;
#pragma unroll
      for (int b = 0; b < blocks; ++b)
        for (int half = 0; half < 2; ++half)
          if (row + b * apart + half * 8 < a.n)
            write_out(a, tile, y_row, row + b * apart + half * 8, sums[b][i + half * 2 + e]);
    }
}

}  // namespace medley::sm90
