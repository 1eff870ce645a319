// linear, headwise_linear and grouped_linear. Three kernels, one rule: the order of additions of an output is fixed by
// the weight's shape and dtypes.
//
//   bf16 x bf16   mma.sync m16n8k16, weight rows in M, tokens in N. K is cut into eight slices; inside a slice one
//                 accumulator runs upwards, then the slices are added in order. `narrow` (up to 64 tokens) gives each
//                 slice a warp and adds through shared memory; `wide` (128 x 128 tiles) walks the slices one after the
//                 other and adds into a second set of registers: the same sums, so a token's bits do not depend on
//                 which of the two ran.
//   anything else float32 FMA, a warp for four outputs, lanes along K.
//
// Both matrix kernels read 16 bytes of a row a lane and feed them to two instructions, so the k that an instruction
// sums are not neighbours: of 32, instruction 0 takes {0-3, 8-11, 16-19, 24-27}. Weights and tokens agree on it.
#include "kernels/linear.h"

#include <cstdint>

#include "kernels/cuda/common.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr int slices = 8;   // of K; one warp each in `narrow`
constexpr int k_step = 32;  // k that a lane's 16 bytes cover across the quad
constexpr int64_t narrow_tokens = 64;

struct Gemm {
  const void* x;
  const std::byte* weight;
  const float* bias;
  void* y;
  int64_t x_stride, y_stride, n, k, slot_bytes;
  int64_t tokens;  // of x; grouped: pairs
  bool y_bf16, accumulate;
  int64_t x_head_bytes, y_head_bytes;  // headwise: from one head (the grid's z) to the next
  // grouped
  const int32_t *sorted, *expert_ids, *num_post_padded;
  int64_t x_divisor, block_m;
};

__device__ Gemm of_head(Gemm a) {
  a.x = static_cast<const std::byte*>(a.x) + blockIdx.z * a.x_head_bytes;
  a.y = static_cast<std::byte*>(a.y) + blockIdx.z * a.y_head_bytes;
  if (a.sorted == nullptr) a.weight += blockIdx.z * a.slot_bytes;
  return a;
}

// Which rows of x and y a block's token tile holds, and with which matrix. y_row < 0: nothing there.
struct Tile {
  const std::byte* weight;
  const float* bias;
  bool empty;
};

__device__ Tile open_tile(const Gemm& a, int tile_tokens, int* x_row, int* y_row) {
  Tile tile{a.weight, a.bias, false};
  if (a.sorted == nullptr) {
    for (int i = threadIdx.x; i < tile_tokens; i += threads) {
      const int64_t t = int64_t(blockIdx.y) * tile_tokens + i;
      x_row[i] = y_row[i] = t < a.tokens ? int(t) : -1;
    }
  } else {
    const int parts = int((a.block_m + tile_tokens - 1) / tile_tokens);
    const int64_t block = blockIdx.y / parts, first = int64_t(blockIdx.y % parts) * tile_tokens;
    if (block * a.block_m >= *a.num_post_padded) {
      tile.empty = true;
      return tile;
    }
    const int slot = a.expert_ids[block];
    tile.weight += slot * a.slot_bytes;
    if (tile.bias != nullptr) tile.bias += slot * a.n;
    for (int i = threadIdx.x; i < tile_tokens; i += threads) {
      const int64_t pair = first + i < a.block_m ? a.sorted[block * a.block_m + first + i] : a.tokens;
      const bool used = pair < a.tokens;
      x_row[i] = used ? int(pair / a.x_divisor) : -1;
      y_row[i] = used ? int(pair) : -1;
    }
  }
  __syncthreads();
  return tile;
}

__device__ void write_out(const Gemm& a, const float* bias, int64_t row, int64_t column, float value) {
  if (bias != nullptr) value += bias[column];
  if (a.y_bf16) {
    static_cast<__nv_bfloat16*>(a.y)[row * a.y_stride + column] = __float2bfloat16_rn(value);
  } else {
    float* y = static_cast<float*>(a.y) + row * a.y_stride + column;
    *y = a.accumulate ? *y + value : value;
  }
}

__device__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Two instructions over the 32 k of three 16-byte pieces: weight rows g and g + 8, token g.
__device__ void multiply_step(float (&d)[4], uint4 low, uint4 high, uint4 x) {
  multiply(d, low.x, high.x, low.y, high.y, x.x, x.y);
  multiply(d, low.z, high.z, low.w, high.w, x.z, x.w);
}

// Eight neighbouring bf16 at row + k, zeros past the end.
template <bool vectors>
__device__ uint4 load_eight(const __nv_bfloat16* row, int64_t k, int64_t end) {
  if constexpr (vectors) {
    return row != nullptr && k < end ? __ldg(reinterpret_cast<const uint4*>(row + k)) : make_uint4(0, 0, 0, 0);
  } else {
    union {
      uint4 four;
      uint16_t bits[8];
    } out;
    for (int i = 0; i < 8; ++i)
      out.bits[i] = row != nullptr && k + i < end ? __bfloat16_as_ushort(row[k + i]) : uint16_t(0);
    return out.four;
  }
}

__host__ __device__ inline int64_t slice_of(int64_t k) {
  return ((k + slices - 1) / slices + k_step - 1) / k_step * k_step;
}

// 16 outputs x groups * 8 tokens.
template <int groups, bool vectors>
__global__ void __launch_bounds__(threads) narrow(Gemm all) {
  const Gemm a = of_head(all);
  __shared__ float partial[slices][16][groups * 8 + 1];
  __shared__ int x_row[groups * 8], y_row[groups * 8];
  const Tile tile = open_tile(a, groups * 8, x_row, y_row);
  if (tile.empty) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int64_t out = int64_t(blockIdx.x) * 16;
  const auto* weight = reinterpret_cast<const __nv_bfloat16*>(tile.weight);
  const __nv_bfloat16* low = out + g < a.n ? weight + (out + g) * a.k : nullptr;
  const __nv_bfloat16* high = out + g + 8 < a.n ? weight + (out + g + 8) * a.k : nullptr;
  const __nv_bfloat16* tokens[groups];
#pragma unroll
  for (int j = 0; j < groups; ++j) {
    const int row = x_row[j * 8 + g];
    tokens[j] = row >= 0 ? static_cast<const __nv_bfloat16*>(a.x) + row * a.x_stride : nullptr;
  }
  float sums[groups][4] = {};
  const int64_t slice = slice_of(a.k), end = min(a.k, (warp + 1) * slice);
#pragma unroll(groups == 1 ? 8 : groups == 2 ? 4 : 2)
  for (int64_t k = warp * slice; k < end; k += k_step) {
    const uint4 w_low = load_eight<vectors>(low, k + q * 8, a.k), w_high = load_eight<vectors>(high, k + q * 8, a.k);
#pragma unroll
    for (int j = 0; j < groups; ++j)
      multiply_step(sums[j], w_low, w_high, load_eight<vectors>(tokens[j], k + q * 8, a.k));
  }
#pragma unroll
  for (int j = 0; j < groups; ++j)
    for (int i = 0; i < 4; ++i) partial[warp][g + i / 2 * 8][j * 8 + q * 2 + i % 2] = sums[j][i];
  __syncthreads();
  for (int item = threadIdx.x; item < 16 * groups * 8; item += threads) {
    const int row = item % 16, token = item / 16;
    if (y_row[token] < 0 || out + row >= a.n) continue;
    float sum = 0;
    for (int s = 0; s < slices; ++s) sum += partial[s][row][token];
    write_out(a, tile.bias, y_row[token], out + row, sum);
  }
}

constexpr int wide_tile = 128;  // outputs and tokens
constexpr int stages = 4;
constexpr int stage_bytes = 2 * wide_tile * k_step * 2;  // weights, tokens; rows of 64 bytes: two fill the banks once

__device__ void copy_async(uint32_t to, const void* from, bool used) {
  const int bytes = used ? 16 : 0;  // the rest is zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}

// 128 outputs x 128 tokens; warp: 64 x 32.
__global__ void __launch_bounds__(threads, 1) wide(Gemm all) {
  const Gemm a = of_head(all);
  extern __shared__ __align__(128) std::byte memory[];
  __shared__ int x_row[wide_tile], y_row[wide_tile];
  const Tile tile = open_tile(a, wide_tile, x_row, y_row);
  if (tile.empty) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int warp_out = warp / 4 * 64, warp_token = warp % 4 * 32;
  const int64_t out = int64_t(blockIdx.x) * wide_tile;
  const auto shared = uint32_t(__cvta_generic_to_shared(memory));
  const int64_t steps = (a.k + k_step - 1) / k_step, slice_steps = slice_of(a.k) / k_step;

  // Thread: pieces of 16 bytes number threadIdx.x and + 256 of each matrix's 512 in a stage.
  const auto load = [&](int64_t step) {
    if (step < steps) {
      const uint32_t to = shared + uint32_t(step % stages) * stage_bytes;
      for (int half = 0; half < 2; ++half) {
        const int item = threadIdx.x + half * threads, row = item / 4;
        const int64_t k = step * k_step + item % 4 * 8;
        const bool in_w = out + row < a.n && k < a.k, in_x = x_row[row] >= 0 && k < a.k;
        const auto* w = reinterpret_cast<const __nv_bfloat16*>(tile.weight) + (in_w ? (out + row) * a.k + k : 0);
        const auto* x = static_cast<const __nv_bfloat16*>(a.x) + (in_x ? x_row[row] * a.x_stride + k : 0);
        copy_async(to + item * 16, w, in_w);
        copy_async(to + stage_bytes / 2 + item * 16, x, in_x);
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  for (int s = 0; s < stages - 1; ++s) load(s);

  float total[4][4][4] = {}, sums[4][4][4] = {};
  for (int64_t step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2));
    __syncthreads();
    load(step + stages - 1);
    const std::byte* w_at = memory + step % stages * stage_bytes + (warp_out + g) * 64 + q * 16;
    const std::byte* x_at = memory + step % stages * stage_bytes + stage_bytes / 2 + (warp_token + g) * 64 + q * 16;
    uint4 x[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = *reinterpret_cast<const uint4*>(x_at + j * 8 * 64);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 low = *reinterpret_cast<const uint4*>(w_at + i * 16 * 64);
      const uint4 high = *reinterpret_cast<const uint4*>(w_at + (i * 16 + 8) * 64);
#pragma unroll
      for (int j = 0; j < 4; ++j) multiply_step(sums[i][j], low, high, x[j]);
    }
    if ((step + 1) % slice_steps == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          for (int e = 0; e < 4; ++e) total[i][j][e] += sums[i][j][e], sums[i][j][e] = 0;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t column = out + warp_out + i * 16 + g + e / 2 * 8;
        const int row = y_row[warp_token + j * 8 + q * 2 + e % 2];
        if (row >= 0 && column < a.n) write_out(a, tile.bias, row, column, total[i][j][e]);
      }
}

// Four neighbouring elements as floats, zeros past the end.
template <class T>
__device__ void load_four(const T* row, int64_t k, int64_t end, bool vectors, float (&out)[4]) {
  if (vectors) {
    alignas(16) T values[4];
    if constexpr (sizeof(T) == 4) {
      *reinterpret_cast<uint4*>(values) = __ldg(reinterpret_cast<const uint4*>(row + k));
    } else {
      *reinterpret_cast<uint2*>(values) = __ldg(reinterpret_cast<const uint2*>(row + k));
    }
    for (int i = 0; i < 4; ++i) out[i] = to_float(values[i]);
  } else {
    for (int i = 0; i < 4; ++i) out[i] = k + i < end ? to_float(row[k + i]) : 0.0f;
  }
}

constexpr int warp_outs = 4;

// 32 outputs (four a warp) x tile_tokens.
template <class X, class W, int tile_tokens>
__global__ void __launch_bounds__(threads) fma_kernel(Gemm all, bool vectors) {
  const Gemm a = of_head(all);
  __shared__ int x_row[tile_tokens], y_row[tile_tokens];
  const Tile tile = open_tile(a, tile_tokens, x_row, y_row);
  if (tile.empty) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t out = (int64_t(blockIdx.x) * (threads / 32) + warp) * warp_outs;
  float sums[warp_outs][tile_tokens] = {};
  for (int64_t k = lane * 4; k < a.k; k += 128) {
    float w[warp_outs][4];
#pragma unroll
    for (int o = 0; o < warp_outs; ++o) {
      if (out + o < a.n) {
        load_four(reinterpret_cast<const W*>(tile.weight) + (out + o) * a.k, k, a.k, vectors, w[o]);
      } else {
        for (int i = 0; i < 4; ++i) w[o][i] = 0;
      }
    }
#pragma unroll
    for (int t = 0; t < tile_tokens; ++t) {
      if (x_row[t] < 0) continue;
      float x[4];
      load_four(static_cast<const X*>(a.x) + x_row[t] * a.x_stride, k, a.k, vectors, x);
#pragma unroll
      for (int o = 0; o < warp_outs; ++o)
        for (int i = 0; i < 4; ++i) sums[o][t] = fmaf(w[o][i], x[i], sums[o][t]);
    }
  }
#pragma unroll
  for (int o = 0; o < warp_outs; ++o)
#pragma unroll
    for (int t = 0; t < tile_tokens; ++t) {
      const float sum = warp_sum(sums[o][t]);
      if (lane == 0 && y_row[t] >= 0 && out + o < a.n) write_out(a, tile.bias, y_row[t], out + o, sum);
    }
}

bool aligned(const void* data, int64_t stride_bytes, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % uintptr_t(bytes) == 0 && stride_bytes % bytes == 0;
}

template <bool vectors>
void launch_narrow(const Gemm& a, dim3 grid, int groups, cudaStream_t stream) {
  switch (groups) {
    case 1: narrow<1, vectors><<<grid, threads, 0, stream>>>(a); break;
    case 2: narrow<2, vectors><<<grid, threads, 0, stream>>>(a); break;
    case 4: narrow<4, vectors><<<grid, threads, 0, stream>>>(a); break;
    default: narrow<8, vectors><<<grid, threads, 0, stream>>>(a); break;
  }
}

// `rows`: tokens, or grouped the rows of a block; `blocks`: 1, or grouped the most blocks there can be.
void launch_matrix(const Gemm& a, int64_t rows, int64_t blocks, unsigned heads, cudaStream_t stream) {
  const bool vectors = aligned(a.weight, a.k * 2, 16) && aligned(a.x, a.x_stride * 2, 16) && a.slot_bytes % 16 == 0 &&
                       a.x_head_bytes % 16 == 0;
  // Few wide tiles leave processors idle; the bits are the same.
  const int64_t wide_blocks = blocks_for(a.n, wide_tile) * blocks_for(rows, wide_tile) * blocks * heads;
  if (rows > narrow_tokens && wide_blocks >= 96 && vectors) {
    static const cudaError_t raised =
        cudaFuncSetAttribute(wide, cudaFuncAttributeMaxDynamicSharedMemorySize, stages * stage_bytes);
    MEDLEY_CHECK(raised == cudaSuccess);
    const dim3 grid(blocks_for(a.n, wide_tile), unsigned(blocks * blocks_for(rows, wide_tile)), heads);
    wide<<<grid, threads, stages * stage_bytes, stream>>>(a);
    return;
  }
  const int groups = rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
  const dim3 grid(blocks_for(a.n, 16), unsigned(blocks * blocks_for(rows, groups * 8)), heads);
  if (vectors) {
    launch_narrow<true>(a, grid, groups, stream);
  } else {
    launch_narrow<false>(a, grid, groups, stream);
  }
}

template <class X, class W>
void launch_fma(const Gemm& a, int64_t rows, int64_t blocks, unsigned heads, cudaStream_t stream) {
  const bool vectors = a.k % 4 == 0 && aligned(a.weight, a.k * int64_t(sizeof(W)), 4 * sizeof(W)) &&
                       aligned(a.x, a.x_stride * int64_t(sizeof(X)), 4 * sizeof(X)) &&
                       a.slot_bytes % int64_t(4 * sizeof(W)) == 0 && a.x_head_bytes % int64_t(4 * sizeof(X)) == 0;
  const unsigned outs = blocks_for(a.n, threads / 32 * warp_outs);
  if (rows == 1) {
    fma_kernel<X, W, 1><<<dim3(outs, unsigned(blocks), heads), threads, 0, stream>>>(a, vectors);
  } else {
    fma_kernel<X, W, 8><<<dim3(outs, unsigned(blocks * blocks_for(rows, 8)), heads), threads, 0, stream>>>(a, vectors);
  }
}

void launch(const Gemm& a, DType x, DType weight, int64_t rows, int64_t blocks, int64_t heads, ExecContext& context) {
  if (rows * blocks * heads * a.n == 0) return;
  if (x == DType::bf16 && weight == DType::bf16)
    return launch_matrix(a, rows, blocks, unsigned(heads), stream_of(context));
  with_float_type(x, [&](auto* x_type) {
    with_weight_type(weight, [&](auto* w_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using W = std::remove_pointer_t<decltype(w_type)>;
      if constexpr (!(std::is_same_v<X, __nv_bfloat16> && std::is_same_v<W, __nv_bfloat16>))
        launch_fma<X, W>(a, rows, blocks, unsigned(heads), stream_of(context));
    });
  });
}

void run_linear(const LinearArgs& a, ExecContext& context) {
  const Gemm gemm{.x = a.x.data,
                  .weight = a.weight.data,
                  .bias = a.bias,
                  .y = a.y.data,
                  .x_stride = a.x.strides[0],
                  .y_stride = a.y.strides[0],
                  .n = a.weight.n,
                  .k = a.weight.k,
                  .slot_bytes = 0,
                  .tokens = a.x.size(0),
                  .y_bf16 = a.y.dtype == DType::bf16,
                  .accumulate = a.accumulate};
  launch(gemm, a.x.dtype, a.weight.dtype, a.x.size(0), 1, 1, context);
  check_launch("linear");
}

void run_headwise(const HeadwiseLinearArgs& a, ExecContext& context) {
  const Gemm gemm{.x = a.x.data,
                  .weight = a.weight.data,
                  .bias = nullptr,
                  .y = a.y.data,
                  .x_stride = a.x.strides[0],
                  .y_stride = a.y.strides[0],
                  .n = a.weight.n,
                  .k = a.weight.k,
                  .slot_bytes = a.weight.slot_bytes,
                  .tokens = a.x.size(0),
                  .y_bf16 = a.y.dtype == DType::bf16,
                  .accumulate = false,
                  .x_head_bytes = a.x.strides[1] * int64_t(size_of(a.x.dtype)),
                  .y_head_bytes = a.y.strides[1] * int64_t(size_of(a.y.dtype))};
  launch(gemm, a.x.dtype, a.weight.dtype, a.x.size(0), 1, a.weight.slots, context);
  check_launch("headwise_linear");
}

void run_grouped(const GroupedLinearArgs& a, ExecContext& context) {
  const Gemm gemm{.x = a.x.data,
                  .weight = a.weight.data,
                  .bias = a.bias,
                  .y = a.y.data,
                  .x_stride = a.x.strides[0],
                  .y_stride = a.y.strides[0],
                  .n = a.weight.n,
                  .k = a.weight.k,
                  .slot_bytes = a.weight.slot_bytes,
                  .tokens = a.num_pairs,
                  .y_bf16 = a.y.dtype == DType::bf16,
                  .accumulate = false,
                  .sorted = a.sorted_token_ids,
                  .expert_ids = a.expert_ids,
                  .num_post_padded = a.num_tokens_post_padded,
                  .x_divisor = a.x_divisor,
                  .block_m = a.block_m};
  // As align_capacity(): each slot with any pair wastes at most block_m - 1 rows.
  const int64_t worst = a.num_pairs + std::min(a.num_pairs, a.weight.slots) * (a.block_m - 1);
  launch(gemm, a.x.dtype, a.weight.dtype, a.block_m, (worst + a.block_m - 1) / a.block_m, 1, context);
  check_launch("grouped_linear");
}

}  // namespace

extern const Implementation<LinearDesc, LinearArgs> linear{"cuda.linear", Level::cuda, no_blocks, run_linear};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{"cuda.headwise_linear", Level::cuda,
                                                                                    no_blocks, run_headwise};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{"cuda.grouped_linear", Level::cuda,
                                                                                 no_blocks, run_grouped};

}  // namespace medley::cuda
