// Absorbed MLA for up to 16 query rows a request, as a decode step with 16 heads has them: keys lie in the rows of the
// matrix instruction and queries in its columns (scores 64 keys x 16 queries, sums 512 latent columns x 16 queries), so
// that no product is spent on rows that nobody has, and shared memory holds keys instead. Every sum is taken in the
// order in which one block of mla_decode.cu takes it (`Halves`), so the bits are the same, and which kernel runs may
// depend on the batch.
//
// Four warpgroups: one scores a step of 64 keys and weighs them, two add the weighted values, 256 columns each, and the
// fourth copies: keys through a ring of parts (a third of the columns of 64 keys), and the next queries.
#include <algorithm>

#include "kernels/sm90/mla.h"

namespace medley::sm90::absorbed {
namespace {

constexpr int parts = 3, part_tiles = tiles / parts, part_bytes = part_tiles * tile_bytes;
constexpr int slots = 8;  // of the ring
constexpr int threads = 4 * 128;
constexpr int query_loaders = 96;
constexpr int query_tile_bytes = narrow_rows * 128;
constexpr int columns = 4;  // queries whose accumulators a thread holds: 2 quad + {0, 1}, and the same + 8

struct Shared {
  std::byte k[slots][part_bytes];
  std::byte q[tiles * query_tile_bytes];
  std::byte weights[2][query_tile_bytes];  // of a step, bf16: [16 queries][64 keys]
  float highest[2][4][narrow_rows];        // largest scores: step, warp
  float rescale[2][narrow_rows];           // of a step: by what the sums before it must be scaled
  float added[2][2][4][narrow_rows];       // sums of weights: step, half of its keys, quad of `Halves`
  float total[2][narrow_rows], reached[narrow_rows];
  float inverse[2][narrow_rows];  // of a piece
  uint64_t full[slots], empty[slots];
  uint64_t weights_full[2], weights_empty[2], sums_full[2], queries_full, queries_empty;
};
constexpr int shared_bytes = sizeof(Shared);
static_assert(shared_bytes <= 227 * 1024 && part_bytes % 1024 == 0 && query_tile_bytes % 1024 == 0);

// Where a thing of a ring of `size` lies, and the parity of its turn.
template <int size>
struct Turn {
  int at = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++at == size) at = 0, parity ^= 1;
  }
};

// As open_work(), for one tile of rows. The code is much of what a short launch costs: it stays small.
__device__ bool open(const Mla& a, int index, Work& work) {
  const int group = int(unsigned(index) / unsigned(a.num_rows));
  work.row = index - group * a.num_rows;
  work.token = a.row_offsets[work.row], work.computed = a.computed[work.row];
  const int fresh = a.row_offsets[work.row + 1] - work.token;
  work.first = 0, work.count = fresh * a.heads;
  work.begin = group * a.group_pieces * a.piece_tokens;
  work.end = min(work.begin + a.group_pieces * a.piece_tokens, work.computed + fresh);
  return fresh > 0 && work.begin < work.end;
}

// Calls what(work, begin, end) for the pieces of this block in order.
template <class What>
__device__ void for_each_piece(const Mla& a, const What& what) {
#pragma unroll 1
  for (int index = blockIdx.x; index < a.num_rows * a.groups; index += gridDim.x) {
    Work work;
    if (!open(a, index, work)) continue;
#pragma unroll 1
    for (int begin = work.begin; begin < work.end; begin += a.piece_tokens)
      what(work, begin, min(begin + a.piece_tokens, work.end));
  }
}
// Which new token of the request a query row belongs to: row / heads, for rows below 16.
__device__ int local_of(int row, int heads) {
  int local = 0;
  for (int next = heads; next <= row; next += heads) ++local;
  return local;
}

// One warp. A lane knows the row of one run of copy_rows keys of the piece: eight steps of up to four runs.
__device__ void feed(const CUtensorMap* map, const Mla& a, Shared& shared) {
  const int runs = keys / a.copy_rows, lane = threadIdx.x % 32, run = lane % runs, tile = lane / runs;
  Turn<slots> turn;
  for_each_piece(a, [&](const Work& work, int begin, int end) {
    const int key = begin + lane * a.copy_rows;
    int row = -keys;  // past the end: outside the tensor, which the copy engine reads as zeros
    if (key < end) row = a.block_table[work.row * a.table_stride + key / a.tokens_per_block] + key % a.tokens_per_block;
#pragma unroll 1
    for (int step = 0; begin + step * keys < end; ++step) {
      const int from = __shfl_sync(0xffffffffu, row, step * runs + run);
#pragma unroll 1
      for (int part = 0; part < parts; ++part, turn.advance()) {
        uint64_t* full = &shared.full[turn.at];
        barrier_wait(&shared.empty[turn.at], turn.parity ^ 1);
        if (lane == 0) barrier_expect(full, part_bytes);
        __syncwarp();
        if (tile < part_tiles)
          copy_box(shared.k[turn.at] + tile * tile_bytes + run * a.copy_rows * 128, map,
                   (part * part_tiles + tile) * tile_columns, from, full);
      }
    }
  });
}

// Three warps: the query rows as bf16, swizzled, zeros past the last. The next ones are loaded while these are in use.
// Two rows are three loads of a thread.
__device__ void load_queries(const Mla& a, Shared& shared) {
  constexpr int fours = key_dim / 4, loads = 2 * fours / query_loaders, pairs_at_once = 4;
  static_assert(loads * query_loaders == 2 * fours);
  const int thread = threadIdx.x % 128 - 32;
  Turn<1> turn;
  for_each_piece(a, [&](const Work& work, int begin, int) {
    if (begin != work.begin) return;
    const float* q = a.q + work.token * a.q_token;
#pragma unroll 1
    for (int first = 0; first < narrow_rows; first += 2 * pairs_at_once) {
      float4 values[pairs_at_once][loads];
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const int item = thread + i * query_loaders, odd = item >= fours ? 1 : 0, four = item - odd * fours;
#pragma unroll
        for (int p = 0; p < pairs_at_once; ++p) {
          const int row = first + 2 * p + odd;
          values[p][i] = make_float4(0, 0, 0, 0);
          if (row < work.count) values[p][i] = __ldg(reinterpret_cast<const float4*>(q + row * a.q_head) + four);
        }
      }
      if (first == 0) barrier_wait(&shared.queries_empty, turn.parity ^ 1);
#pragma unroll
      for (int i = 0; i < loads; ++i) {
        const int item = thread + i * query_loaders, odd = item >= fours ? 1 : 0, four = item - odd * fours;
#pragma unroll
        for (int p = 0; p < pairs_at_once; ++p) {
          const int row = first + 2 * p + odd;
          const __nv_bfloat162 low = __floats2bfloat162_rn(values[p][i].x, values[p][i].y),
                               high = __floats2bfloat162_rn(values[p][i].z, values[p][i].w);
          uint2 bits;
          memcpy(&bits.x, &low, 4);
          memcpy(&bits.y, &high, 4);
          *reinterpret_cast<uint2*>(shared.q + four / 16 * query_tile_bytes + row * 128 +
                                    (four % 16 / 2 ^ row % 8) * 16 + four % 2 * 8) = bits;
        }
      }
    }
    fence_async_proxy();
    barrier_arrive(&shared.queries_full);
    turn.advance();
  });
}

// Query of the thread's column c; accumulator i is column i / 4 * 2 + i % 2, and key or latent column g + i / 2 % 2 * 8
// of its warp.
__device__ int query_of(int c) {
  return threadIdx.x % 4 * 2 + c % 2 + c / 2 * 8;
}
__device__ int column_of(int accumulator) {
  return accumulator / 4 * 2 + accumulator % 2;
}

// What the scoring warpgroup carries from step to step: of its four columns what the weights are relative to, of the
// two that it adds up (even rows g the first two) the sums.
struct Softmax {
  float highest[columns], total[2];
  float rescale[2], rest[2][2];  // of the step before, whose weights are not added yet
  bool pending;
};

// Pairs of floats of neighbouring queries.
__device__ float2& pair(float (&values)[narrow_rows], int query) {
  return *reinterpret_cast<float2*>(&values[query]);
}

// Odd warps: the weights of the step before. The even warp beside has left the first two pairs of each quad of
// `Halves`, the other two follow in order.
__device__ void add_pending(Shared& shared, Softmax& softmax, int slot) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp % 2 == 0 || !softmax.pending) return;
  const float2 before = pair(shared.added[slot][warp / 2][lane / 8], lane % 4 * 2 + lane / 4 % 2 * 8);
  softmax.total[0] = fmaf(softmax.total[0], softmax.rescale[0], before.x + softmax.rest[0][0] + softmax.rest[0][1]);
  softmax.total[1] = fmaf(softmax.total[1], softmax.rescale[1], before.y + softmax.rest[1][0] + softmax.rest[1][1]);
}

// Scores of a step to weights. `seen`: where the first key that some query does not see lies.
__device__ void weigh(const Mla& a, Shared& shared, const int (&limit)[columns], int seen, int first,
                      const Turn<2>& turn, float (&scores)[8], Softmax& softmax) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, slot = turn.at;
  if (first + keys > seen) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (first + warp * 16 + g + i / 2 % 2 * 8 >= limit[column_of(i)]) scores[i] = -INFINITY;
  }
  // The largest of the warp's 16 keys: each exchange halves what a lane holds. Lane g ends with column g / 2.
  float most[columns];
#pragma unroll
  for (int c = 0; c < columns; ++c) most[c] = fmaxf(scores[c / 2 * 4 + c % 2], scores[c / 2 * 4 + c % 2 + 2]);
  const bool upper = g & 4, odd = g & 2;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const float other = __shfl_xor_sync(0xffffffffu, upper ? most[c] : most[c + 2], 16);
    most[c] = fmaxf(upper ? most[c + 2] : most[c], other);
  }
  const float other = __shfl_xor_sync(0xffffffffu, odd ? most[0] : most[1], 8);
  float largest = fmaxf(odd ? most[1] : most[0], other);
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 4));
  if (g % 2 == 0) shared.highest[slot][warp][quad * 2 + g / 2 % 2 + g / 4 * 8] = largest;
  named_sync(1, 128);
  add_pending(shared, softmax, slot ^ 1);
  float base[columns], rescale[columns], weights[8];
#pragma unroll
  for (int c = 0; c < columns; c += 2) {
    float2 now = pair(shared.highest[slot][0], quad * 2 + c * 4);
#pragma unroll
    for (int w = 1; w < 4; ++w) {
      const float2 its = pair(shared.highest[slot][w], quad * 2 + c * 4);
      now.x = fmaxf(now.x, its.x), now.y = fmaxf(now.y, its.y);
    }
    base[c] = raise(now.x * a.scale_log2, softmax.highest[c], rescale[c]);
    base[c + 1] = raise(now.y * a.scale_log2, softmax.highest[c + 1], rescale[c + 1]);
    if (warp == 0 && g == 0) pair(shared.rescale[slot], quad * 2 + c * 4) = make_float2(rescale[c], rescale[c + 1]);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) weights[i] = exp2(fmaf(scores[i], a.scale_log2, -base[column_of(i)]));
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(weights[i], weights[i + 1]);
    memcpy(&pairs[i / 2], &both, 4);
  }
  barrier_wait(&shared.weights_empty[slot], turn.parity ^ 1);
  // Lane l names the place of query l % 8 (+ 8 in the upper half) and eight keys.
  const int query = lane % 8 + lane / 16 * 8, chunk = warp * 2 + lane / 8 % 2;
  store_transposed(shared.weights[slot] + query * 128 + (chunk ^ query % 8) * 16, pairs);
  fence_async_proxy();
  __syncwarp();
  if (lane == 0) barrier_arrive(&shared.weights_full[slot]);

  // Keys and their neighbours: a lane of an even row adds the first two columns, one of an odd row the others.
  const bool odd_row = g & 1;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float low = weights[half * 2 + c], high = weights[half * 2 + c + 4];
      softmax.rest[c][half] = (odd_row ? high : low) + __shfl_xor_sync(0xffffffffu, odd_row ? low : high, 4);
    }
#pragma unroll
  for (int c = 0; c < 2; ++c) softmax.rescale[c] = odd_row ? rescale[c + 2] : rescale[c];
  if (warp % 2 == 0)
    pair(shared.added[slot][warp / 2][g / 2], quad * 2 + g % 2 * 8) =
        make_float2(softmax.rest[0][0] + softmax.rest[0][1], softmax.rest[1][0] + softmax.rest[1][1]);
  softmax.pending = true;
}

// The sums of a piece's weights.
__device__ void finish_piece(const Mla& a, Shared& shared, const Work& work, int begin, int number, int slot,
                             Softmax& softmax) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  named_sync(1, 128);
  add_pending(shared, softmax, slot);
  float2 sum = make_float2(softmax.total[0], softmax.total[1]);
  for (int mask = 8; mask < 32; mask *= 2) {  // the quads of `Halves` are pairs of this one's rows
    sum.x += __shfl_xor_sync(0xffffffffu, sum.x, mask);
    sum.y += __shfl_xor_sync(0xffffffffu, sum.y, mask);
  }
  if (warp % 2 == 1 && g < 2) pair(shared.total[warp / 2], quad * 2 + g * 8) = sum;
  if (warp == 1 && g == 0) {
    pair(shared.reached, quad * 2) = make_float2(softmax.highest[0], softmax.highest[1]);
    pair(shared.reached, quad * 2 + 8) = make_float2(softmax.highest[2], softmax.highest[3]);
  }
  named_sync(1, 128);
  if (warp != 0) return;
  if (lane < narrow_rows) {
    const float all = shared.total[0][lane] + shared.total[1][lane];
    shared.inverse[number % 2][lane] = all > 0 ? 1.0f / all : 0.0f;
    const int local = local_of(lane, a.heads), head = lane - local * a.heads;
    const int piece = begin / spread_keys, last = (work.computed + local) / spread_keys;
    if (lane < work.count && last != 0 && piece <= last)
      a.partial_lse[partial_item(a, work.token + local, head) + int64_t(piece) * a.heads] =
          shared.reached[lane] + log2f(all);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(&shared.sums_full[number % 2]);
}

__device__ void score(const Mla& a, Shared& shared) {
  const int lane = threadIdx.x % 32;
  const uint64_t q = operand(shared_address(shared.q));
  Turn<slots> part_turn;
  Turn<2> turn;
  Turn<1> query_turn;
  int number = 0;
  for_each_piece(a, [&](const Work& work, int begin, int end) {
    if (begin == work.begin) barrier_wait(&shared.queries_full, query_turn.parity);
    const int seen = min(end, work.computed + 1);
    int limit[columns];
    Softmax softmax;
    softmax.pending = false, softmax.total[0] = softmax.total[1] = 0;
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      limit[c] = min(end, work.computed + local_of(min(query_of(c), work.count - 1), a.heads) + 1);
      softmax.highest[c] = -INFINITY;
    }
#pragma unroll 1
    for (int first = begin; first < end; first += keys, turn.advance()) {
      float scores[8] = {};
      hold(scores);
#pragma unroll
      for (int part = 0; part < parts; ++part, part_turn.advance()) {
        barrier_wait(&shared.full[part_turn.at], part_turn.parity);
        const uint64_t from = operand(shared_address(shared.k[part_turn.at]));
        wgmma_begin();
#pragma unroll
        for (int step = 0; step < part_tiles * 4; ++step)
          wgmma_scores(scores, from + ((step / 4 * tile_bytes + step % 4 * 32) >> 4),
                       q + (((part * part_tiles + step / 4) * query_tile_bytes + step % 4 * 32) >> 4), part + step);
      }
      wgmma_commit();
      wgmma_wait<0>();
      hold(scores);
      if (first + keys >= work.end) {
        if (lane == 0) barrier_arrive(&shared.queries_empty);
        query_turn.advance();
      }
      weigh(a, shared, limit, seen, first, turn, scores, softmax);
    }
    finish_piece(a, shared, work, begin, number++, turn.at ^ 1, softmax);
  });
}

// Sums of the thread's latent columns and queries, of four tiles.
__device__ void write_columns(const Mla& a, const Work& work, int begin, int group, const float (&inverse)[columns],
                              const float (&out)[4][8]) {
  const int row = group * 256 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, piece = begin / spread_keys;
#pragma unroll
  for (int c = 0; c < columns; ++c) {
    const int query = query_of(c);
    if (query >= work.count) continue;
    const int local = local_of(query, a.heads), head = query - local * a.heads, token = work.token + local;
    const int last = (work.computed + local) / spread_keys;
    if (piece > last) continue;  // keys after the row's position: not read
    const int64_t item = partial_item(a, token, head) + int64_t(piece) * a.heads;
    const int64_t at = token * a.y_token + head * a.y_head + row;
    const auto write = [&](auto* to) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        cuda::store(to + i / 2 * tile_columns + i % 2 * 8, out[i / 2][c / 2 * 4 + c % 2 + i % 2 * 2] * inverse[c]);
    };
    if (last == 0 && a.y_bf16) {
      write(static_cast<__nv_bfloat16*>(a.y) + at);
    } else {
      write(last == 0 ? static_cast<float*>(a.y) + at : a.partial + item * latent + row);
    }
  }
}

// One of two warpgroups.
__device__ void add_values(const Mla& a, Shared& shared, int group) {
  const int lane = threadIdx.x % 32;
  Turn<slots> part_turn;
  Turn<2> turn;
  int number = 0;
  for_each_piece(a, [&](const Work& work, int begin, int end) {
    float out[4][8] = {}, inverse[columns];
#pragma unroll 1
    for (int first = begin; first < end; first += keys, turn.advance()) {
      int at[parts];
#pragma unroll
      for (int part = 0; part < parts; ++part, part_turn.advance()) {
        at[part] = part_turn.at;
        barrier_wait(&shared.full[part_turn.at], part_turn.parity);
      }
      std::byte* tile[4];
#pragma unroll
      for (int t = 0; t < 4; ++t)  // tiles 0 to 3, or 4 to 7
        tile[t] = group == 0 ? shared.k[at[t / part_tiles]] + t % part_tiles * tile_bytes
                             : shared.k[at[(t + 4) / part_tiles]] + (t + 4) % part_tiles * tile_bytes;
      barrier_wait(&shared.weights_full[turn.at], turn.parity);
      if (first + keys > end) {  // rows that no query sees may hold anything, also NaN, and 0 * NaN is NaN
        const int unseen = first + keys - end;
#pragma unroll 1
        for (int i = threadIdx.x % 128; i < unseen * 8; i += 128)
#pragma unroll
          for (int t = 0; t < 4; ++t)
            reinterpret_cast<uint4*>(tile[t] + (keys - unseen) * 128)[i] = make_uint4(0, 0, 0, 0);
        fence_async_proxy();
        named_sync(2 + group, 128);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 rescale = pair(shared.rescale[turn.at], lane % 4 * 2 + half * 8);
#pragma unroll
        for (int t = 0; t < 4; ++t)
#pragma unroll
          for (int i = half * 4; i < half * 4 + 4; ++i) out[t][i] *= i % 2 == 0 ? rescale.x : rescale.y;
      }
#pragma unroll
      for (int t = 0; t < 4; ++t) hold(out[t]);
      const uint64_t p = operand(shared_address(shared.weights[turn.at]));
      uint64_t v[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) v[t] = operand(shared_address(tile[t]));
      wgmma_begin();
#pragma unroll
      for (int step = 0; step < keys / 16; ++step)
#pragma unroll
        for (int t = 0; t < 4; ++t) wgmma_columns(out[t], v[t] + (step * 16 * 128 >> 4), p + (step * 32 >> 4));
      wgmma_commit();
      wgmma_wait<0>();
#pragma unroll
      for (int t = 0; t < 4; ++t) hold(out[t]);
      if (first + keys >= end) {  // before the scoring warpgroup may come round again
        barrier_wait(&shared.sums_full[number % 2], number / 2 & 1);
#pragma unroll
        for (int c = 0; c < columns; ++c) inverse[c] = shared.inverse[number % 2][query_of(c)];
      }
      __syncwarp();
      if (lane < parts) barrier_arrive(&shared.empty[lane == 0 ? at[0] : lane == 1 ? at[1] : at[2]]);
      if (lane == parts) barrier_arrive(&shared.weights_empty[turn.at]);
    }
    write_columns(a, work, begin, group, inverse, out);
    ++number;
  });
}

__global__ void __launch_bounds__(threads, 1) narrow(const __grid_constant__ CUtensorMap map, const Mla a) {
  extern __shared__ __align__(1024) std::byte memory[];  // as the tiles need
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < slots; ++slot) barrier_init(&shared.full[slot], 1), barrier_init(&shared.empty[slot], 8);
    for (int slot = 0; slot < 2; ++slot)
      barrier_init(&shared.weights_full[slot], 4), barrier_init(&shared.weights_empty[slot], 8),
          barrier_init(&shared.sums_full[slot], 1);
    barrier_init(&shared.queries_full, query_loaders);
    barrier_init(&shared.queries_empty, 4);
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous();
  let_next_start();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    score(a, shared);
  } else if (group < 3) {
    add_values(a, shared, group - 1);
  } else if (threadIdx.x < 3 * 128 + 32) {
    feed(&map, a, shared);
  } else {
    load_queries(a, shared);
  }
}

}  // namespace

void attend_narrow(const CUtensorMap& map, const Mla& a, int processors, ExecContext& context) {
  static const cudaError_t raised =
      cudaFuncSetAttribute(narrow, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  MEDLEY_CHECK(raised == cudaSuccess);
  const int64_t items = int64_t(a.row_tiles) * a.num_rows * a.groups;
  launch_kernel("paged_attention", narrow, {unsigned(std::min<int64_t>(items, processors)), threads, shared_bytes},
                context, map, a);
}

}  // namespace medley::sm90::absorbed
