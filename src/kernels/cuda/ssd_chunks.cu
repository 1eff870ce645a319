// Mamba2's scan by chunks of 128 tokens (state space duality, Dao and Gu 2024, section 6), for heads of 64 with 64, 128
// or 256 states. With d[i] the decay's logarithm summed up to token i of a chunk and S the state before the chunk,
//   y[i] = e^d[i] S C[i] + sum over j <= i of e^(d[i] - d[j]) dt[j] (C[i] . B[j]) x[j] + D x[i],
//   S' = e^d[127] S + sum over j of e^(d[127] - d[j]) dt[j] x[j] B[j]^T.
// Four kernels: `share` makes what the heads of a group have in common (C . B, and B and C as operands); `local` each
// chunk's own part of the state after it; `pass` goes through a row's chunks and leaves the state before each in its
// place; `outputs` makes y. Only `pass` is serial, and its work is one addition per element of the state.
//
// Operands are split (split_operands.h), sums are float32. Operands are stored in the order in which the lanes of a
// warp hold them, 16 bytes a lane, so that nothing is transposed on the way and no bank is asked twice. Which element
// stands in which column is free as long as both operands agree: of 32 elements of the head lane g of eight holds four
// from 16 (g % 2) + 4 (g / 2) on, and of 16 states lane q of four those from 4 q on, so that memory is read and written
// by float4 and whole sectors. Chunks begin at a row's first new token: bits depend on the row's own tokens alone.
#include "kernels/cuda/ssd_chunks.h"

#include <algorithm>

#include "kernels/cuda/split_operands.h"
#include "kernels/cuda/state_slots.h"

namespace medley::cuda {
namespace {

constexpr int chunk = 128, tiles = chunk / 16;
constexpr int head_dim = 64, columns = head_dim / 8, wide_columns = head_dim / 16;
constexpr int threads = 128, warps = threads / 32, own_tiles = tiles / warps;
constexpr int share_threads = tiles * 32;

// What the heads of a group share in a chunk beside the operands: exponents of the scales of B and of each tile of C,
// and the largest |C . B| of each tile.
struct Common {
  int b_exponent, c_exponent[tiles];
  float largest[tiles];
};

struct Chunks {
  const float *x, *dt, *b, *c, *a, *d, *dt_bias;
  float* y;
  States state;
  int64_t x_token, x_head, dt_token, b_token, b_group, c_token, c_group, y_token, y_head;
  int heads, groups, num_rows;
  float dt_min, dt_max;
  int2* places;               // [chunks]: first token, tokens
  uint4 *b_columns, *c_rows;  // [chunks, groups, tiles, states / 16, high and low, 32]
  float4* pairs;              // [chunks, groups, tiles, tiles, 2, 32]: C . B
  Common* common;             // [chunks, groups]
  float4* steps;              // [chunks, heads, chunk]: d / ln 2 as the sum of two floats, dt
  uint4* states;              // [chunks, heads, columns, states / 16, 32]: floats of `local`, then operands of `pass`
  int* exponents;             // [chunks, heads, columns] of their scales
};

__host__ __device__ inline int chunks_of(int fresh) {
  return fresh < ssd_chunked_from ? 0 : (fresh + chunk - 1) / chunk;
}

// First token and number of tokens of the step's chunk `index`; no token beyond the last chunk.
__device__ int2 find_chunk(const Chunks& a, int index) {
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < a.num_rows; first += 32) {
    const int at = first + lane;
    const int begin = at < a.num_rows ? a.state.row_offsets[at] : 0;
    const int fresh = at < a.num_rows ? a.state.row_offsets[at + 1] - begin : 0;
    const int own = chunks_of(fresh);
    int upto = own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(all, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned found = __ballot_sync(all, index < upto);
    if (found == 0) {
      index -= __shfl_sync(all, upto, 31);
      continue;
    }
    const int owner = __ffs(found) - 1;
    const int before = (index - __shfl_sync(all, upto - own, owner)) * chunk;
    return {__shfl_sync(all, begin, owner) + before, min(chunk, __shfl_sync(all, fresh, owner) - before)};
  }
  return {0, 0};
}

// The step's number of the first chunk of a row.
__device__ int first_chunk(const Chunks& a, int row) {
  int sum = 0;
  for (int at = threadIdx.x % 32; at < row; at += 32)
    sum += chunks_of(a.state.row_offsets[at + 1] - a.state.row_offsets[at]);
  return int(__reduce_add_sync(all, unsigned(sum)));
}

// Where in 32 elements of the head the four of lane group g begin.
__device__ int own_elements(int g) {
  return g % 2 * 16 + g / 2 * 4;
}
// The tokens of a tile whose elements a lane holds in a fragment that is summed over tokens.
__device__ int own_token(int i) {
  return threadIdx.x % 4 * 2 + i % 2 + i / 2 * 8;
}

// Block (chunk, group); warp: a tile of tokens.
template <int state_steps>
__global__ void __launch_bounds__(share_threads) share(Chunks a) {
  extern __shared__ uint4 b_rows[];  // [tiles, state_steps, 2, 32]
  __shared__ uint32_t memory[tiles];
  const int index = blockIdx.x, group = blockIdx.y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const int2 place = find_chunk(a, index);
  if (group == 0 && threadIdx.x == 0) a.places[index] = place;
  if (place.y == 0) return;
  const float* b = a.b + int64_t(place.x) * a.b_token + group * a.b_group;
  const float* c = a.c + int64_t(place.x) * a.c_token + group * a.c_group;
  const int64_t item = int64_t(index) * a.groups + group;
  uint4* b_columns = a.b_columns + (item * tiles + warp) * state_steps * 64 + lane;
  uint4* c_rows = a.c_rows + (item * tiles + warp) * state_steps * 64 + lane;

  const int token = warp * 16 + g;
  const auto load_rows = [&](const float* m, int64_t stride, int step, float4(&v)[2]) {
    for (int half = 0; half < 2; ++half)
      v[half] = load_four(m + (token + half * 8) * stride + step * 16 + quad * 4, token + half * 8 < place.y);
  };
  uint32_t largest_b = 0, largest_c = 0;
#pragma unroll
  for (int step = 0; step < state_steps; ++step) {
    float4 v[2];
    load_rows(b, a.b_token, step, v);
    largest_b = max(largest_b, max(magnitude(v[0]), magnitude(v[1])));
    load_rows(c, a.c_token, step, v);
    largest_c = max(largest_c, max(magnitude(v[0]), magnitude(v[1])));
  }
  const int b_exponent = exponent_for(block_largest(largest_b, memory));
  const int c_exponent = exponent_for(__reduce_max_sync(all, largest_c));
  const auto split_rows = [](const float4(&v)[2], float scale, uint4(&parts)[2]) {
    const float4 x = scaled(v[0], scale), y = scaled(v[1], scale);
    split(x.x, x.y, parts[0].x, parts[1].x);
    split(y.x, y.y, parts[0].y, parts[1].y);
    split(x.z, x.w, parts[0].z, parts[1].z);
    split(y.z, y.w, parts[0].w, parts[1].w);
  };
  const float b_scale = power_of_two(b_exponent), c_scale = power_of_two(c_exponent);
#pragma unroll 4
  for (int step = 0; step < state_steps; ++step) {
    float4 v[2];
    uint4 parts[2];
    load_rows(b, a.b_token, step, v);
    split_rows(v, b_scale, parts);
    for (int part = 0; part < 2; ++part) b_rows[((warp * state_steps + step) * 2 + part) * 32 + lane] = parts[part];
    // As columns: states 4 (g / 2) + g % 2 of 16, and the second but next.
    const float* column = b + step * 16 + g / 2 * 4 + g % 2;
    float w[4][2];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) {
        const int t = warp * 16 + own_token(i);
        w[i][j] = t < place.y ? column[t * a.b_token + j * 2] * b_scale : 0.0f;
      }
    split(w[0][0], w[1][0], parts[0].x, parts[1].x);
    split(w[2][0], w[3][0], parts[0].y, parts[1].y);
    split(w[0][1], w[1][1], parts[0].z, parts[1].z);
    split(w[2][1], w[3][1], parts[0].w, parts[1].w);
    for (int part = 0; part < 2; ++part) b_columns[(step * 2 + part) * 32] = parts[part];
  }
  __syncthreads();

  float sums[tiles][2][4] = {};
#pragma unroll 2
  for (int step = 0; step < state_steps; ++step) {
    float4 v[2];
    uint4 left[2];
    load_rows(c, a.c_token, step, v);
    split_rows(v, c_scale, left);
    for (int part = 0; part < 2; ++part) c_rows[(step * 2 + part) * 32] = left[part];
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      if (t > warp) break;
      const uint4* right = b_rows + (t * state_steps + step) * 64 + lane;
      const uint4 high = right[0], low = right[32];
      multiply(sums[t][0], left[1], high.x, high.z);
      multiply(sums[t][1], left[1], high.y, high.w);
      multiply(sums[t][0], left[0], low.x, low.z);
      multiply(sums[t][1], left[0], low.y, low.w);
      multiply(sums[t][0], left[0], high.x, high.z);
      multiply(sums[t][1], left[0], high.y, high.w);
    }
  }
  float4* pairs = a.pairs + (item * tiles + warp) * tiles * 64 + lane;
  uint32_t largest = 0;
  const float back = power_of_two(-b_exponent - c_exponent);
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
    if (t > warp) break;
    for (int n = 0; n < 2; ++n) {
      const float4 four = scaled(make_float4(sums[t][n][0], sums[t][n][1], sums[t][n][2], sums[t][n][3]), back);
      largest = max(largest, magnitude(four));
      pairs[(t * 2 + n) * 32] = four;
    }
  }
  largest = __reduce_max_sync(all, largest);
  if (lane != 0) return;
  Common& common = a.common[item];
  if (warp == 0) common.b_exponent = b_exponent;
  common.c_exponent[warp] = c_exponent;
  common.largest[warp] = __uint_as_float(largest);
}

// The inputs of a head in a chunk: tiles `warp` and `warp + warps` of a warp; lane: four tokens of each, four
// elements of each 32.
using Inputs = float4[own_tiles][4][2];
__device__ void load_inputs(const Chunks& a, int2 place, int head, Inputs& x) {
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int tile = 0; tile < own_tiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = (warp + tile * warps) * 16 + own_token(i);
      const float* from = a.x + int64_t(place.x + t) * a.x_token + head * a.x_head + own_elements(g);
      for (int n = 0; n < 2; ++n) x[tile][i][n] = load_four(from + n * 32, t < place.y);
    }
}
// As fragments [wide_columns, high and low, 32] of each tile: 16 columns x 16 tokens.
__device__ void store_inputs(const Inputs& x, float scale, uint4 (&to)[tiles][wide_columns][2][32]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int tile = 0; tile < own_tiles; ++tile)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      auto& at = to[warp + tile * warps];
      float4 v[4];
      for (int i = 0; i < 4; ++i) v[i] = scaled(x[tile][i][n], scale);
      uint4 parts[2];
      split(v[0].x, v[1].x, parts[0].x, parts[1].x);
      split(v[0].y, v[1].y, parts[0].y, parts[1].y);
      split(v[2].x, v[3].x, parts[0].z, parts[1].z);
      split(v[2].y, v[3].y, parts[0].w, parts[1].w);
      for (int part = 0; part < 2; ++part) at[n * 2][part][lane] = parts[part];
      split(v[0].z, v[1].z, parts[0].x, parts[1].x);
      split(v[0].w, v[1].w, parts[0].y, parts[1].y);
      split(v[2].z, v[3].z, parts[0].z, parts[1].z);
      split(v[2].w, v[3].w, parts[0].w, parts[1].w);
      for (int part = 0; part < 2; ++part) at[n * 2 + 1][part][lane] = parts[part];
    }
}

// Block (head, chunk): sum of e^(d[127] - d[j]) dt[j] x[j] B[j]^T, a row of `states` an element of the head.
template <int state_steps>
__global__ void __launch_bounds__(threads, 3) local(Chunks a) {
  __shared__ uint4 inputs[tiles][wide_columns][2][32];
  __shared__ double sums_of_warps[warps];
  __shared__ float weights[chunk];
  __shared__ uint32_t memory[warps];
  static_assert(threads == chunk);  // a thread a token
  const int head = blockIdx.x, index = blockIdx.y, group = head / (a.heads / a.groups);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int2 place = a.places[index];
  if (place.y == 0) return;
  const int64_t item = int64_t(index) * a.heads + head, group_item = int64_t(index) * a.groups + group;
  Inputs x;
  load_inputs(a, place, head, x);

  // Sums of logarithms in double: differences of large ones keep float32's bits.
  float dt = 0;
  double upto = 0;
  if (threadIdx.x < place.y) {
    const float raw = a.dt[int64_t(place.x + threadIdx.x) * a.dt_token + head];
    dt = fminf(fmaxf(softplus(raw + (a.dt_bias != nullptr ? a.dt_bias[head] : 0.0f)), a.dt_min), a.dt_max);
    upto = double(dt) * double(a.a[head]) * 1.4426950408889634;
  }
  for (int step = 1; step < 32; step *= 2) {
    const double other = __shfl_up_sync(all, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) sums_of_warps[warp] = upto;
  __syncthreads();
  double before = 0, total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += sums_of_warps[w];
    total += sums_of_warps[w];
  }
  upto += before;
  const float high_part = float(upto);
  a.steps[item * chunk + threadIdx.x] = make_float4(high_part, float(upto - high_part), dt, 0);
  weights[threadIdx.x] = dt * exp2f(float(total - upto));
  __syncthreads();
  uint32_t largest = 0;
#pragma unroll
  for (int tile = 0; tile < own_tiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      for (int n = 0; n < 2; ++n) {
        x[tile][i][n] = scaled(x[tile][i][n], weights[(warp + tile * warps) * 16 + own_token(i)]);
        largest = max(largest, magnitude(x[tile][i][n]));
      }
  const int exponent = exponent_for(block_largest(largest, memory));
  store_inputs(x, power_of_two(exponent), inputs);
  __syncthreads();

  // A warp: all of the head x 32 states (16 where there are 64) at a time.
  constexpr int own_steps = state_steps / warps < 2 ? 1 : 2;
  const float back = power_of_two(-exponent - a.common[group_item].b_exponent);
#pragma unroll 1
  for (int first = warp * own_steps; first < state_steps; first += warps * own_steps) {
    const uint4* b = a.b_columns + (group_item * tiles * state_steps + first) * 64 + lane;
    uint4 next[own_steps][2];
    const auto fetch = [&](int t) {
#pragma unroll
      for (int s = 0; s < own_steps; ++s)
        for (int part = 0; part < 2; ++part) next[s][part] = __ldg(b + ((t * state_steps + s) * 2 + part) * 32);
    };
    fetch(0);
    float sums[wide_columns][own_steps][2][4] = {};
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      uint4 right[own_steps][2];
      for (int s = 0; s < own_steps; ++s)
        for (int part = 0; part < 2; ++part) right[s][part] = next[s][part];
      if (t + 1 < tiles) fetch(t + 1);
#pragma unroll
      for (int m = 0; m < wide_columns; m += 2) {
        const uint4 left[2][2] = {{inputs[t][m][0][lane], inputs[t][m][1][lane]},
                                  {inputs[t][m + 1][0][lane], inputs[t][m + 1][1][lane]}};
#pragma unroll
        for (int product = 0; product < 3; ++product)
#pragma unroll
          for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int s = 0; s < own_steps; ++s) {
              const uint4 by = right[s][product == 1];
              multiply(sums[m + i][s][0], left[i][product == 0], by.x, by.y);
              multiply(sums[m + i][s][1], left[i][product == 0], by.z, by.w);
            }
      }
    }
    float4* to = reinterpret_cast<float4*>(a.states) + (item * columns * state_steps + first) * 32 + lane;
#pragma unroll
    for (int m = 0; m < wide_columns; ++m)
#pragma unroll
      for (int s = 0; s < own_steps; ++s)
        for (int half = 0; half < 2; ++half) {
          const auto& own = sums[m][s];
          to[((m * 2 + half) * state_steps + s) * 32] =
              scaled(make_float4(own[0][half * 2], own[0][half * 2 + 1], own[1][half * 2], own[1][half * 2 + 1]), back);
        }
  }
}

constexpr int pass_warps = 1, pass_stages = 4;

// Block (part of a head, row); warp: eight elements of the head, all states of them. A lane copies, reads and writes
// its own 16 bytes only.
template <int state_steps>
__global__ void __launch_bounds__(pass_warps * 32) pass(Chunks a) {
  extern __shared__ float4 ring[];  // [pass_warps, pass_stages, state_steps, 32]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const int head = blockIdx.x / (columns / pass_warps), row = blockIdx.y;
  const int column = blockIdx.x % (columns / pass_warps) * pass_warps + warp;
  const int chunks = chunks_of(a.state.row_offsets[row + 1] - a.state.row_offsets[row]);
  if (chunks == 0) return;
  const int64_t first = first_chunk(a, row);
  const auto item = [&](int c) { return (first + c) * a.heads + head; };
  const auto states_at = [&](int c) { return a.states + (item(c) * columns + column) * state_steps * 32 + lane; };
  float4* mine = ring + warp * pass_stages * state_steps * 32 + lane;
  const auto fetch = [&](int c) {
    if (c < chunks)
      for (int s = 0; s < state_steps; ++s)
        copy_sixteen(&mine[(c % pass_stages * state_steps + s) * 32], states_at(c) + s * 32);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int c = 0; c < pass_stages - 1; ++c) fetch(c);

  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int element = column / 4 * 32 + own_elements(g) + column % 4;
  const int64_t offset = (int64_t(head) * head_dim + element) * (state_steps * 16) + quad * 4;
  float4 state[state_steps];
#pragma unroll
  for (int s = 0; s < state_steps; ++s)
    state[s] = read != nullptr ? *reinterpret_cast<const float4*>(read + offset + s * 16) : make_float4(0, 0, 0, 0);

  float decays = 0;  // of the next 32 chunks, one a lane
  for (int c = 0; c < chunks; ++c) {
    fetch(c + pass_stages - 1);
    if (c % 32 == 0 && c + lane < chunks) {
      const float4 end = a.steps[item(c + lane) * chunk + chunk - 1];
      decays = exp2f(end.x + end.y);
    }
    uint32_t largest = 0;
#pragma unroll
    for (int s = 0; s < state_steps; ++s) largest = max(largest, magnitude(state[s]));
    const int exponent = exponent_for(__reduce_max_sync(all, largest));
    if (lane == 0) a.exponents[item(c) * columns + column] = exponent;
    const float scale = power_of_two(exponent), decay = __shfl_sync(all, decays, c % 32);
    uint4* to = states_at(c);
    asm volatile("cp.async.wait_group %0;" ::"n"(pass_stages - 1) : "memory");
#pragma unroll
    for (int s = 0; s < state_steps; ++s) {
      const float4 v = scaled(state[s], scale), own = mine[(c % pass_stages * state_steps + s) * 32];
      uint4 parts;
      split(v.x, v.y, parts.x, parts.z);
      split(v.z, v.w, parts.y, parts.w);
      to[s * 32] = parts;
      state[s].x = fmaf(decay, state[s].x, own.x), state[s].y = fmaf(decay, state[s].y, own.y);
      state[s].z = fmaf(decay, state[s].z, own.z), state[s].w = fmaf(decay, state[s].w, own.w);
    }
  }
  if (write == nullptr) return;
#pragma unroll
  for (int s = 0; s < state_steps; ++s) *reinterpret_cast<float4*>(write + offset + s * 16) = state[s];
}

template <int state_steps>
struct Outputs {
  uint4 state[columns][state_steps][32];
  uint4 inputs[tiles][wide_columns][2][32];
  float4 steps[chunk];
  float factors[tiles][chunk];  // dt[j] and j's decay up to the tile
  uint32_t memory[warps];
};

// Adds pairs of 16 x 16 tokens times the inputs' wide columns n and n + 1, products of four columns in turns.
__device__ void add_pairs(float (&sums)[columns][4], const uint4 (&left)[2], const uint4 (&right)[2][2], int n) {
#pragma unroll
  for (int product = 0; product < 3; ++product)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4 by = right[i][product == 1];
      multiply(sums[(n + i) * 2], left[product == 0], by.x, by.z);
      multiply(sums[(n + i) * 2 + 1], left[product == 0], by.y, by.w);
    }
}

// Block (head, chunk); warp: all elements of the head for two tiles of tokens, one from each end, so that every warp
// has nine tiles of pairs.
template <int state_steps>
__global__ void __launch_bounds__(threads, 3) outputs(Chunks a) {
  extern __shared__ uint4 bytes[];
  auto& shared = *reinterpret_cast<Outputs<state_steps>*>(bytes);
  const int head = blockIdx.x, index = blockIdx.y, group = head / (a.heads / a.groups);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const int2 place = a.places[index];
  if (place.y == 0) return;
  const int64_t item = int64_t(index) * a.heads + head, group_item = int64_t(index) * a.groups + group;
  for (int i = threadIdx.x; i < columns * state_steps * 32; i += threads)
    copy_sixteen(&shared.state[0][0][0] + i, a.states + item * columns * state_steps * 32 + i);
  copy_sixteen(&shared.steps[threadIdx.x], a.steps + item * chunk + threadIdx.x);
  int inputs_exponent;
  {
    Inputs x;
    load_inputs(a, place, head, x);
    uint32_t largest = 0;
#pragma unroll
    for (int tile = 0; tile < own_tiles; ++tile)
      for (int i = 0; i < 4; ++i) largest = max(largest, max(magnitude(x[tile][i][0]), magnitude(x[tile][i][1])));
    inputs_exponent = exponent_for(block_largest(largest, shared.memory));
    store_inputs(x, power_of_two(inputs_exponent), shared.inputs);
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (warp * 16 >= place.y) return;

  const Common& common = a.common[group_item];
  const int own[2] = {warp, tiles - 1 - warp};  // the tiles
  float largest_dt = 0;
  for (int t = lane; t < chunk; t += 32) largest_dt = fmaxf(largest_dt, shared.steps[t].z);
  largest_dt = warp_max(largest_dt);
  const float skip = a.d[head];

  float sums[2][columns][4] = {};
  const uint4* c[2];
  for (int tile = 0; tile < 2; ++tile) c[tile] = a.c_rows + (group_item * tiles + own[tile]) * state_steps * 64 + lane;
  uint4 left[2][2];  // of each tile, high and low
  for (int tile = 0; tile < 2; ++tile)
    for (int part = 0; part < 2; ++part) left[tile][part] = __ldg(c[tile] + part * 32);
#pragma unroll
  for (int s = 0; s < state_steps; ++s) {
    uint4 next[2][2];
    for (int tile = 0; tile < 2; ++tile)
      for (int part = 0; part < 2; ++part)
        if (s + 1 < state_steps) next[tile][part] = __ldg(c[tile] + ((s + 1) * 2 + part) * 32);
#pragma unroll
    for (int n = 0; n < columns; n += 4) {
      uint4 right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) right[i] = shared.state[n + i][s][lane];
#pragma unroll
      for (int product = 0; product < 3; ++product)
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int tile = 0; tile < 2; ++tile)
            multiply(sums[tile][n + i], left[tile][product == 0], product == 1 ? right[i].z : right[i].x,
                     product == 1 ? right[i].w : right[i].y);
    }
    for (int tile = 0; tile < 2; ++tile)
      for (int part = 0; part < 2; ++part) left[tile][part] = next[tile][part];
  }

  // Before the tile decays end at its start, as a factor of each earlier token and one for all of S; inside, a row has
  // its own. What is summed up to here gets the scale of what comes; of pairs, no decay is above one, and D is on their
  // diagonal.
  const float4* pairs[2];
  float4 coming[2][2];
  float4 starts[2];
  int exponents[2];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    pairs[tile] = a.pairs + (group_item * tiles + own[tile]) * tiles * 64 + lane;
    for (int n = 0; n < 2; ++n) coming[tile][n] = __ldg(pairs[tile] + n * 32);
    exponents[tile] = exponent_for(magnitude(common.largest[own[tile]] * largest_dt + fabsf(skip)));
    const float scale = power_of_two(exponents[tile]);
    const float4 start = own[tile] == 0 ? make_float4(0, 0, 0, 0) : shared.steps[own[tile] * 16 - 1];
    for (int t = lane; t < own[tile] * 16; t += 32) {
      const float4 step = shared.steps[t];
      shared.factors[own[tile]][t] = step.z * exp2f((start.x - step.x) + (start.y - step.y)) * scale;
    }
    starts[tile] = start;
    const float factor = exp2f(start.x + start.y) * power_of_two(exponents[tile] + inputs_exponent);
#pragma unroll
    for (int n = 0; n < columns; ++n) {
      const float back = power_of_two(-common.c_exponent[own[tile]] - a.exponents[item * columns + n]);
      for (int e = 0; e < 4; ++e) sums[tile][n][e] = sums[tile][n][e] * back * factor;
    }
  }
  __syncwarp();

#pragma unroll 1
  for (int t = 0; t < own[1]; ++t) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      if (t >= own[tile]) continue;
      const float4 dots[2] = {coming[tile][0], coming[tile][1]};
      for (int n = 0; n < 2; ++n) coming[tile][n] = __ldg(pairs[tile] + ((t + 1) * 2 + n) * 32);
      const float* factors = &shared.factors[own[tile]][t * 16 + quad * 2];
      const float2 by[2] = {*reinterpret_cast<const float2*>(factors), *reinterpret_cast<const float2*>(factors + 8)};
      split(dots[0].x * by[0].x, dots[0].y * by[0].y, left[tile][0].x, left[tile][1].x);
      split(dots[0].z * by[0].x, dots[0].w * by[0].y, left[tile][0].y, left[tile][1].y);
      split(dots[1].x * by[1].x, dots[1].y * by[1].y, left[tile][0].z, left[tile][1].z);
      split(dots[1].z * by[1].x, dots[1].w * by[1].y, left[tile][0].w, left[tile][1].w);
    }
#pragma unroll
    for (int n = 0; n < wide_columns; n += 2) {
      uint4 right[2][2];
      for (int i = 0; i < 2; ++i)
        for (int part = 0; part < 2; ++part) right[i][part] = shared.inputs[t][n + i][part][lane];
      add_pairs(sums[1], left[1], right, n);
      if (t < own[0]) add_pairs(sums[0], left[0], right, n);
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const float scale = power_of_two(exponents[tile]);
    const float4 rows[2] = {shared.steps[own[tile] * 16 + g], shared.steps[own[tile] * 16 + g + 8]};
    float factors[2];
    for (int half = 0; half < 2; ++half)
      factors[half] = exp2f((rows[half].x - starts[tile].x) + (rows[half].y - starts[tile].y));
#pragma unroll
    for (int n = 0; n < columns; ++n)
      for (int e = 0; e < 4; ++e) sums[tile][n][e] *= factors[e / 2];
    uint32_t parts[2][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = n * 8 + quad * 2;
      const float4 from[2] = {shared.steps[own[tile] * 16 + j], shared.steps[own[tile] * 16 + j + 1]};
      const float dots[2][2] = {{coming[tile][n].x, coming[tile][n].y}, {coming[tile][n].z, coming[tile][n].w}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = g + half * 8;
        float value[2];
        for (int e = 0; e < 2; ++e) {
          const float decay = exp2f((rows[half].x - from[e].x) + (rows[half].y - from[e].y));
          value[e] = j + e <= i ? dots[half][e] * from[e].z * decay : 0.0f;
          if (j + e == i) value[e] += skip;
        }
        split(value[0] * scale, value[1] * scale, parts[0][n * 2 + half], parts[1][n * 2 + half]);
      }
    }
    for (int part = 0; part < 2; ++part)
      left[tile][part] = make_uint4(parts[part][0], parts[part][1], parts[part][2], parts[part][3]);
#pragma unroll
    for (int n = 0; n < wide_columns; n += 2) {
      uint4 right[2][2];
      for (int i = 0; i < 2; ++i)
        for (int part = 0; part < 2; ++part) right[i][part] = shared.inputs[own[tile]][n + i][part][lane];
      add_pairs(sums[tile], left[tile], right, n);
    }
  }
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    const float back = power_of_two(-exponents[tile] - inputs_exponent);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = own[tile] * 16 + g + half * 8;
      if (i >= place.y) continue;
      float* y = a.y + int64_t(place.x + i) * a.y_token + head * a.y_head + quad * 4;
      const auto& own_sums = sums[tile];
      for (int n = 0; n < columns; n += 4)
        for (int e = half * 2; e < half * 2 + 2; ++e)
          *reinterpret_cast<float4*>(y + n * 8 + e % 2 * 16) =
              scaled(make_float4(own_sums[n][e], own_sums[n + 1][e], own_sums[n + 2][e], own_sums[n + 3][e]), back);
    }
  }
}

template <int state_steps>
void launch(const Chunks& a, int64_t chunks, cudaStream_t stream) {
  constexpr int share_bytes = tiles * state_steps * 64 * int(sizeof(uint4));
  constexpr int pass_bytes = pass_warps * pass_stages * state_steps * 32 * int(sizeof(float4));
  constexpr int output_bytes = int(sizeof(Outputs<state_steps>));
  const auto allow = [](auto* kernel, int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess;
  };
  static const bool raised = allow(share<state_steps>, share_bytes) && allow(pass<state_steps>, pass_bytes) &&
                             allow(outputs<state_steps>, output_bytes);
  MEDLEY_CHECK(raised);
  const dim3 grid(unsigned(a.heads), unsigned(chunks));
  share<state_steps><<<dim3(unsigned(chunks), unsigned(a.groups)), share_threads, share_bytes, stream>>>(a);
  local<state_steps><<<grid, threads, 0, stream>>>(a);
  pass<state_steps>
      <<<dim3(unsigned(a.heads * (columns / pass_warps)), unsigned(a.num_rows)), pass_warps * 32, pass_bytes, stream>>>(
          a);
  outputs<state_steps><<<grid, threads, output_bytes, stream>>>(a);
  check_launch("ssd_scan");
}

bool fours(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.strides[0] % 4 == 0 && view.strides[1] % 4 == 0;
}

}  // namespace

bool ssd_takes_chunks(const SsdScanArgs& a) {
  const int64_t states = a.b.size(2);
  return !a.reproducible && a.x.size(2) == head_dim && (states == 64 || states == 128 || states == 256) && fours(a.x) &&
         fours(a.b) && fours(a.c) && fours(a.y) &&
         (reinterpret_cast<uintptr_t>(a.state.base) + uintptr_t(a.state.offset_bytes)) % 16 == 0;
}

void ssd_by_chunks(const SsdScanArgs& a, ExecContext& context) {
  Chunks args{.x = data_of<float>(a.x),
              .dt = data_of<float>(a.dt),
              .b = data_of<float>(a.b),
              .c = data_of<float>(a.c),
              .a = a.a,
              .d = a.d,
              .dt_bias = a.dt_bias,
              .y = data_of<float>(a.y),
              .state = states_of(a.rows, a.state),
              .x_token = a.x.strides[0],
              .x_head = a.x.strides[1],
              .dt_token = a.dt.strides[0],
              .b_token = a.b.strides[0],
              .b_group = a.b.strides[1],
              .c_token = a.c.strides[0],
              .c_group = a.c.strides[1],
              .y_token = a.y.strides[0],
              .y_head = a.y.strides[1],
              .heads = int(a.x.size(1)),
              .groups = int(a.b.size(1)),
              .num_rows = int(a.rows.num_rows),
              .dt_min = a.dt_min,
              .dt_max = a.dt_max};
  // At most: a row has one that is not full, and no fewer tokens than 64 a chunk.
  static_assert(chunk == 2 * ssd_chunked_from);
  const int64_t chunks = std::min(a.rows.num_tokens / chunk + a.rows.num_rows, a.rows.num_tokens / ssd_chunked_from);
  const int64_t steps = a.b.size(2) / 16, items = chunks * args.heads, group_items = chunks * args.groups;
  const Workspace::Scope scope(context.workspace);
  const auto alloc = [&]<class T>(T*& to, int64_t count) {
    to = static_cast<T*>(context.workspace.alloc(DType::i32, {count, int64_t(sizeof(T) / 4)}).data);
  };
  alloc(args.places, chunks);
  alloc(args.b_columns, group_items * tiles * steps * 64);
  alloc(args.c_rows, group_items * tiles * steps * 64);
  alloc(args.pairs, group_items * tiles * tiles * 64);
  alloc(args.common, group_items);
  alloc(args.steps, items * chunk);
  alloc(args.states, items * columns * steps * 32);
  alloc(args.exponents, items * columns);
  const cudaStream_t stream = stream_of(context);
  if (steps == 4) return launch<4>(args, chunks, stream);
  if (steps == 8) return launch<8>(args, chunks, stream);
  launch<16>(args, chunks, stream);
}

}  // namespace medley::cuda
