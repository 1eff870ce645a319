// Absorbed MLA attention over the latent cache: keys are the rows (512 latent + 64 rotary elements), values their first
// 512, shared by all heads. docs/kernels/mla_decode.md tells how it works and why.
//
// A block holds 64 query rows (token, head) of one request and walks pieces of its keys through two buffers of 64,
// which a third warpgroup refills by bulk copies. Two warpgroups score the keys, exchange row maxima, and then both add
// all weighted values, each into its 256 of the 512 columns. With many heads the products are the limit and each
// warpgroup scores a buffer of its own (`Pairs`); with few the memory is, and each scores half of one buffer while the
// other is under way (`Halves`). Pieces start at multiples of a length that only the number of heads fixes, and are
// added in ascending order: a token's bits depend on its own position and on nothing else in the step.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/sm90/mla.h"
#include "kernels/sm90/tensor_map.h"

namespace medley::sm90 {
namespace {

using namespace absorbed;

using cuda::blocks_for;
using cuda::data_of;

constexpr int parts = 3;  // barriers a buffer: the product starts when a third has landed
constexpr int part_tiles = tiles / parts;
constexpr int consumers = 256;            // two warpgroups
constexpr int threads = consumers + 128;  // and one that copies: registers move between whole warpgroups only
constexpr int consumer_registers = 208, loader_registers = 88, registers_at_start = 168;  // a thread
static_assert(2 * consumer_registers + loader_registers <= 3 * registers_at_start);
constexpr int query_loaders = 96;  // three warps of it

struct Shared {
  std::byte q[operand_bytes];
  // Once buffer w's scores exist, its rotary tile holds its weights: nobody reads the keys' rotary part again.
  std::byte k[2][operand_bytes];
  float highest[2][rows];
  float total[2][rows];
  uint64_t full[2][parts], empty[2], queries_full, queries_empty;
};
constexpr int shared_bytes = sizeof(Shared);

// One warp of the third warpgroup; its first lanes issue a copy each: three tiles of up to four runs of pages.
__device__ void feed(const CUtensorMap* map, const Mla& a, Shared& shared, int step_keys) {
  const int copies = keys / a.copy_rows, lane = threadIdx.x % 32;
  const int run = lane % copies, tile = lane / copies;
  const bool issues = tile < part_tiles;
  int blocks = 0;
  for (int index = blockIdx.x; index < work_items(a); index += gridDim.x) {
    Work work;
    if (!open_work(a, index, work)) continue;
    const int32_t* table = a.block_table + work.row * a.table_stride;
    const int end = work.begin + (work.end - work.begin + step_keys - 1) / step_keys * step_keys;
    for (int first = work.begin; first < end; first += keys, ++blocks) {
      const int stage = blocks % 2, key = first + run * a.copy_rows;
      int row = -keys;  // past the end: outside the tensor, which the copy engine reads as zeros
      if (issues && key < work.end) row = table[key / a.tokens_per_block] + key % a.tokens_per_block;
      barrier_wait(&shared.empty[stage], (blocks / 2 & 1) ^ 1);
      for (int part = 0; part < parts; ++part) {
        uint64_t* barrier = &shared.full[stage][part];
        if (lane == 0) barrier_expect(barrier, operand_bytes / parts);
        __syncwarp();
        const int column = part * part_tiles + tile;
        if (issues)
          copy_box(shared.k[stage] + column * tile_bytes + run * a.copy_rows * 128, map, column * tile_columns, row,
                   barrier);
      }
    }
  }
}

// Three warps of the third warpgroup: the queries as bf16, swizzled, zeros past the last row, as soon as the products
// before are done. (Loaded by the consumers, they took a sixth of the time.)
__device__ void load_queries(const Mla& a, Shared& shared) {
  constexpr int fours = key_dim / 4, loads = (fours + 31) / 32, at_once = 2, warps = query_loaders / 32;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x - consumers) / 32 - 1;
  int works = 0;
  for (int index = blockIdx.x; index < work_items(a); index += gridDim.x) {
    Work work;
    if (!open_work(a, index, work)) continue;
    const auto row_at = [&](int row) {
      const int token = work.token + (work.first + row) / a.heads, head = (work.first + row) % a.heads;
      return a.q + token * a.q_token + head * a.q_head;
    };
    barrier_wait(&shared.queries_empty, (works++ & 1) ^ 1);
#pragma unroll 1
    for (int first = warp; first < rows; first += warps * at_once) {
      float4 values[at_once][loads];
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        const int row = first + r * warps;
        const auto* from = reinterpret_cast<const float4*>(row_at(min(row, work.count - 1)));
#pragma unroll
        for (int i = 0; i < loads; ++i)
          values[r][i] = row < work.count ? __ldg(from + min(lane + i * 32, fours - 1)) : make_float4(0, 0, 0, 0);
      }
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        const int row = first + r * warps;
#pragma unroll
        for (int i = 0; i < loads; ++i) {
          const int four = lane + i * 32, tile = four / 16, piece = four % 16 / 2;
          const __nv_bfloat162 low = __floats2bfloat162_rn(values[r][i].x, values[r][i].y),
                               high = __floats2bfloat162_rn(values[r][i].z, values[r][i].w);
          uint2 bits;
          memcpy(&bits.x, &low, 4);
          memcpy(&bits.y, &high, 4);
          std::byte* to = shared.q + tile * tile_bytes + row * 128 + (piece ^ (row % 8)) * 16 + four % 2 * 8;
          if (four < fours && row < rows) *reinterpret_cast<uint2*>(to) = bits;
        }
      }
    }
    fence_async_proxy();
    barrier_arrive(&shared.queries_full);
  }
}

// A thread's accumulators belong to two rows: elements 4j, 4j + 1 to row g, 4j + 2, 4j + 3 to row g + 8 of its warp.
struct Softmax {
  float highest[2] = {-INFINITY, -INFINITY};  // what weights are relative to: a maximum, up to rescale_above behind
  float total[2] = {0, 0};                    // of this thread's own columns in this warpgroup's own buffers
};

// Starts the scores of 2 n keys of a buffer, from row `first` on: [64 queries x 2 n keys].
template <int n>
__device__ void multiply_keys(Shared& shared, int stage, int first, uint32_t parity, float (&scores)[n]) {
  const uint64_t q = operand(shared_address(shared.q)), k = operand(shared_address(shared.k[stage] + first * 128));
#pragma unroll
  for (int part = 0; part < parts; ++part) {
    barrier_wait(&shared.full[stage][part], parity);
    if (part == 0) hold(scores);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < part_tiles * 4; ++step) {
      const uint64_t at = uint64_t((part * part_tiles + step / 4) * tile_bytes + step % 4 * 32) >> 4;
      wgmma_scores(scores, q + at, k + at, part + step);
    }
  }
  wgmma_commit();
}

// Rows of the values that no query sees may hold anything, also NaN, and 0 * NaN is NaN.
__device__ void clear_values(std::byte* block, int from, int thread, int stride) {
  const int pieces = (keys - from) * 8;  // of 16 bytes, per tile
  for (int item = thread; item < pieces * (latent / tile_columns); item += stride)
    *reinterpret_cast<uint4*>(block + item / pieces * tile_bytes + from * 128 + item % pieces * 16) =
        make_uint4(0, 0, 0, 0);
}

// The last piece of a row, in registers, and the pieces before, which this very thread wrote: as merge_pieces() adds
// them, bit for bit.
__device__ void merge_in_registers(const Mla& a, int64_t item, int column, int64_t at, int last, float lse,
                                   float inverse, int half, const float (&out)[128]) {
  float highest = lse;
  for (int p = 0; p < last; ++p) highest = fmaxf(highest, a.partial_lse[item + int64_t(p) * a.heads]);
  constexpr int at_once = 8;  // pairs of columns, loads in flight
  static_assert(32 % at_once == 0);
#pragma unroll
  for (int first = 0; first < 32; first += at_once) {
    float2 sum[at_once] = {};
    float total = 0;
    for (int p = 0; p < last; ++p) {
      const int64_t from = item + int64_t(p) * a.heads;
      const float weight = exp2f(a.partial_lse[from] - highest);
      float2 values[at_once];
#pragma unroll
      for (int j = 0; j < at_once; ++j)
        values[j] = *reinterpret_cast<const float2*>(a.partial + from * latent + column + (first + j) * 8);
      total += weight;
#pragma unroll
      for (int j = 0; j < at_once; ++j)
        sum[j].x = fmaf(weight, values[j].x, sum[j].x), sum[j].y = fmaf(weight, values[j].y, sum[j].y);
    }
    const float weight = exp2f(lse - highest);
    total += weight;
    const float share = 1.0f / total;
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      const int i = (first + j) * 4;
      const float x = half == 0 ? out[i] : out[i + 2], y = half == 0 ? out[i + 1] : out[i + 3];
      write_two(a, at + (first + j) * 8, fmaf(weight, x * inverse, sum[j].x) * share,
                fmaf(weight, y * inverse, sum[j].y) * share);
    }
  }
}

__device__ void write_rows(const Mla& a, const Work& work, int begin, int group, const Softmax& softmax,
                           const float (&total)[2], const float (&out)[128]) {
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + g + half * 8;
    if (row >= work.count) continue;
    const int local = (work.first + row) / a.heads, head = (work.first + row) % a.heads;
    const int token = work.token + local, position = work.computed + local;
    if (token < a.first_token || token >= a.last_token) continue;
    const float inverse = total[half] > 0 ? 1.0f / total[half] : 0.0f;
    const int column = group * 256 + quad * 2, piece = begin / a.piece_tokens, last = position / a.piece_tokens;
    if (piece > last) continue;  // keys after the row's position: not read
    const int64_t item = partial_item(a, token, head), at = token * a.y_token + head * a.y_head + column;
    const float lse = softmax.highest[half] + log2f(total[half]);
    if (last == 0) {
#pragma unroll
      for (int j = 0; j < 32; ++j)
        write_two(a, at + j * 8, out[j * 4 + half * 2] * inverse, out[j * 4 + half * 2 + 1] * inverse);
    } else if (a.merges && piece == last) {
      merge_in_registers(a, item, column, at, last, lse, inverse, half, out);
    } else {
      float* to = a.partial + (item + int64_t(piece) * a.heads) * latent + column;
#pragma unroll
      for (int j = 0; j < 32; ++j)
        *reinterpret_cast<float2*>(to + j * 8) =
            make_float2(out[j * 4 + half * 2] * inverse, out[j * 4 + half * 2 + 1] * inverse);
      if (group == 0 && quad == 0) a.partial_lse[item + int64_t(piece) * a.heads] = lse;
    }
  }
}

// Scores to weights, as bf16 in the buffer's rotary tile, from its 16-byte piece `first_piece` on. Returns by what the
// sums must be scaled.
template <int n>
__device__ void weigh(const Mla& a, Shared& shared, int stage, int first_piece, float (&scores)[n], Softmax& softmax,
                      float (&rescale)[2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, row = threadIdx.x % 128 / 32 * 16 + g;
  const int group = threadIdx.x / 128;
  float highest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < n; ++i) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    highest[half] = quad_max(highest[half]) * a.scale_log2;
    if (quad == 0) shared.highest[group][row + half * 8] = highest[half];
  }
  named_sync(1, consumers);  // also: everybody is done with the rotary tile

  float base[2], added[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float now = fmaxf(highest[half], shared.highest[1 - group][row + half * 8]);
    base[half] = raise(now, softmax.highest[half], rescale[half]);
  }
  std::byte* weights = shared.k[stage] + (tiles - 1) * tile_bytes + row * 128 + quad * 4;
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    const int half = i / 2 % 2;
    const float x = exp2(fmaf(scores[i], a.scale_log2, -base[half])),
                y = exp2(fmaf(scores[i + 1], a.scale_log2, -base[half]));
    added[half] += x + y;
    // Row r + 8 has the swizzle of row r.
    *reinterpret_cast<__nv_bfloat162*>(weights + half * 8 * 128 + ((first_piece + i / 4) ^ g) * 16) =
        __floats2bfloat162_rn(x, y);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) softmax.total[half] = fmaf(softmax.total[half], rescale[half], added[half]);
}

// Starts out[64 x 256] += weights[64 x 64 keys] values[64 keys x 256 columns of this warpgroup] for one buffer.
__device__ void add_values(Shared& shared, int stage, int group, float (&out)[128]) {
  const uint64_t p = operand(shared_address(shared.k[stage] + (tiles - 1) * tile_bytes));
  const uint64_t v = operand(shared_address(shared.k[stage] + group * 4 * tile_bytes), tile_bytes);
#pragma unroll
  for (int step = 0; step < keys / 16; ++step) wgmma_values(out, p + (step * 32 >> 4), v + (step * 16 * 128 >> 4));
  wgmma_commit();
}

__device__ void rescale_sums(float (&out)[128], const float (&rescale)[2]) {
  if (!__any_sync(0xffffffffu, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;  // products with 1
#pragma unroll
  for (int i = 0; i < 128; ++i) out[i] *= rescale[i / 2 % 2];
}

// The keys [begin, end) of one piece. `steps` counts the block's steps: phases of the barriers follow from it. No
// product is in flight across a branch: the compiler would wait for each.
//
// Pairs: 128 keys a step, a buffer for each warpgroup.
struct Pairs {
  static constexpr int step_keys = 2 * keys;

  __device__ static void run(const Mla& a, Shared& shared, int begin, int end, const int (&limit)[2], Softmax& softmax,
                             float (&out)[128], int& steps) {
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
    for (int first = begin; first < end; first += step_keys, ++steps) {
      const int first_key = first + group * keys;
      float scores[32] = {}, rescale[2];
      multiply_keys(shared, group, 0, steps & 1, scores);
      wgmma_wait<0>();
      hold(scores);
      mask(scores, first_key, lane % 4, limit);
      weigh(a, shared, group, 0, scores, softmax, rescale);
      if (first_key + keys > end) clear_values(shared.k[group], max(0, end - first_key), threadIdx.x % 128, 128);
      fence_async_proxy();
      named_sync(2, consumers);
      rescale_sums(out, rescale);
      for (int part = 0; part < parts; ++part) barrier_wait(&shared.full[1 - group][part], steps & 1);
      hold(out);
      wgmma_begin();
      add_values(shared, 0, group, out);
      add_values(shared, 1, group, out);
      wgmma_wait<1>();
      if (lane == 0) barrier_arrive(&shared.empty[0]);
      wgmma_wait<0>();
      if (lane == 0) barrier_arrive(&shared.empty[1]);
      hold(out);
    }
  }
};

// Halves: 64 keys a step, half a buffer for each warpgroup, the other buffer under way.
struct Halves {
  static constexpr int step_keys = keys;

  __device__ static void run(const Mla& a, Shared& shared, int begin, int end, const int (&limit)[2], Softmax& softmax,
                             float (&out)[128], int& steps) {
    const int group = threadIdx.x / 128, lane = threadIdx.x % 32, first_row = group * (keys / 2);
    float scores[16] = {};
    const auto finish_scores = [&](int first) {
      float rescale[2];
      mask(scores, first + first_row, lane % 4, limit);
      weigh(a, shared, steps % 2, group * 4, scores, softmax, rescale);
      if (first + keys > end) clear_values(shared.k[steps % 2], end - first, threadIdx.x, consumers);
      fence_async_proxy();
      named_sync(2, consumers);
      rescale_sums(out, rescale);
      hold(out);
      wgmma_begin();
    };
    multiply_keys(shared, steps % 2, first_row, steps / 2 & 1, scores);
    wgmma_wait<0>();
    hold(scores);
    int first = begin;
    for (; first + keys < end; first += keys, ++steps) {
      finish_scores(first);
      add_values(shared, steps % 2, group, out);
      // The next scores queue up behind, so that the matrix units need not wait for this buffer's release.
      multiply_keys(shared, (steps + 1) % 2, first_row, (steps + 1) / 2 & 1, scores);
      wgmma_wait<1>();
      hold(out);
      if (lane == 0) barrier_arrive(&shared.empty[steps % 2]);
      wgmma_wait<0>();
      hold(scores);
    }
    finish_scores(first);
    add_values(shared, steps % 2, group, out);
    wgmma_wait<0>();
    hold(out);
    if (lane == 0) barrier_arrive(&shared.empty[steps % 2]);
    ++steps;
  }
};

template <class Walk>
__device__ void attend_piece(const Mla& a, Shared& shared, const Work& work, int begin, int end, int& steps) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  int limit[2];
  for (int half = 0; half < 2; ++half)
    limit[half] = min(end, work.computed + (work.first + min(row + half * 8, work.count - 1)) / a.heads + 1);
  Softmax softmax;
  float out[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) out[i] = 0;
  Walk::run(a, shared, begin, end, limit, softmax, out, steps);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = quad_sum(softmax.total[half]);
    if (lane % 4 == 0) shared.total[group][row + half * 8] = total;
  }
  named_sync(1, consumers);
  const float total[2] = {shared.total[0][row] + shared.total[1][row],
                          shared.total[0][row + 8] + shared.total[1][row + 8]};
  write_rows(a, work, begin, group, softmax, total, out);
}

template <class Walk>
__device__ void attend(const Mla& a, Shared& shared) {
  int steps = 0, works = 0;
  for (int index = blockIdx.x; index < work_items(a); index += gridDim.x) {
    Work work;
    if (!open_work(a, index, work)) continue;
    barrier_wait(&shared.queries_full, works++ & 1);
    for (int begin = work.begin; begin < work.end; begin += a.piece_tokens)
      attend_piece<Walk>(a, shared, work, begin, min(begin + a.piece_tokens, work.end), steps);
    if (threadIdx.x % 32 == 0) barrier_arrive(&shared.queries_empty);
  }
}

template <class Walk>
__global__ void __launch_bounds__(threads, 1) mla(const __grid_constant__ CUtensorMap map, const Mla a) {
  extern __shared__ __align__(1024) std::byte memory[];  // as the tiles need
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      for (int part = 0; part < parts; ++part) barrier_init(&shared.full[stage][part], 1);
      barrier_init(&shared.empty[stage], consumers / 32);
    }
    barrier_init(&shared.queries_full, query_loaders);
    barrier_init(&shared.queries_empty, consumers / 32);
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous();
  // The products need more registers than a block starts with, the copies fewer. A claim beyond what the block holds
  // waits for ever.
  if (threadIdx.x >= consumers) {
    registers_release<loader_registers>();
    if (threadIdx.x < consumers + 32) {
      feed(&map, a, shared, Walk::step_keys);
    } else {
      load_queries(a, shared);
    }
  } else {
    registers_claim<consumer_registers>();
    attend<Walk>(a, shared);
  }
}

// Short pieces spread one long request over the chip; but a piece of few keys costs as much memory traffic for its
// partial result as for its keys. With 64 heads or more a piece's result is 128 KiB.
int32_t piece_tokens(int64_t heads) {
  return heads >= 64 ? 2048 : 512;
}

// How many pieces of the same queries one block takes in a row: the fewest rounds of the chip, in pieces, and among
// equals the fewest changes of queries, which cost about a quarter of a short piece.
int32_t pieces_together(int64_t streams, int32_t pieces, int processors) {
  int32_t best = 1;
  double least = 0;
  for (int32_t together = 1; together <= pieces; ++together) {
    const int64_t items = streams * blocks_for(pieces, together);
    const double cost = double((items + processors - 1) / processors) * (together + 0.25);
    if (together == 1 || cost < least) best = together, least = cost;
  }
  return best;
}

std::string supports(const PagedAttentionDesc& d) {
  if (d.kv_heads != 1 || d.k_dim != key_dim || d.v_dim != latent || d.k_offset != 0 || d.v_offset != 0)
    return "takes one latent row of 512 + 64 as key and value";
  if (d.cache != DType::bf16) return "takes a bf16 cache";
  if (d.window || d.sinks || d.softcap) return "has no window, sinks or soft cap";
  return {};
}

void run(const PagedAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  if (a.cache.tokens_per_block % 16 != 0)
    fail("[paged_attention] sm90.mla_decode takes pages of a multiple of 16 tokens, not {}", a.cache.tokens_per_block);
  MEDLEY_CHECK(reinterpret_cast<uintptr_t>(a.q.data) % 16 == 0 && a.q.strides[0] % 4 == 0 && a.q.strides[1] % 4 == 0);
  MEDLEY_CHECK(a.scale > 0);  // the largest score is the scale times the largest product
  MEDLEY_CHECK(a.y.strides[0] % 2 == 0 && a.y.strides[1] % 2 == 0 && reinterpret_cast<uintptr_t>(a.y.data) % 8 == 0);
  const int heads = int(a.q.size(1)), page = a.cache.tokens_per_block;
  constexpr double log2_e = 1.4426950408889634;
  Mla args{.q = data_of<float>(a.q),
           .y = a.y.data,
           .block_table = data_of<int32_t>(a.cache.block_table),
           .row_offsets = data_of<int32_t>(a.rows.row_offsets),
           .computed = data_of<int32_t>(a.rows.computed),
           .q_token = a.q.strides[0],
           .q_head = a.q.strides[1],
           .y_token = a.y.strides[0],
           .y_head = a.y.strides[1],
           .table_stride = a.cache.block_table.strides[0],
           .tokens_per_block = page,
           .copy_rows = page % 64 == 0   ? 64
                        : page % 32 == 0 ? 32
                                         : 16,
           .num_rows = int32_t(a.rows.num_rows),
           .heads = heads,
           .piece_tokens = piece_tokens(heads),
           .scale_log2 = float(a.scale * log2_e),
           .y_bf16 = a.y.dtype == DType::bf16};
  args.row_tiles = int(blocks_for(a.rows.max_new_tokens * heads, rows));
  args.max_pieces = int(blocks_for(a.rows.max_context, args.piece_tokens));
  const CUtensorMap map = rows_map(a.cache.base, key_dim, a.cache.row_bytes, tile_columns, args.copy_rows);

  static const int processors = [] {
    for (auto* kernel : {mla<Pairs>, mla<Halves>}) {
      const cudaError_t status =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
      MEDLEY_CHECK(status == cudaSuccess);
    }
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
  }();
  args.group_pieces = pieces_together(int64_t(args.row_tiles) * args.num_rows, args.max_pieces, processors);
  args.groups = int(blocks_for(args.max_pieces, args.group_pieces));
  args.merges = args.groups == 1 && args.max_pieces <= 4;  // more would be read one after the other
  // Long prefills go through in parts, so that the pieces' results stay within 1 GiB.
  const int64_t tokens = a.q.size(0), token_floats = int64_t(args.max_pieces) * heads * (latent + 1);
  const int64_t per_launch = args.max_pieces == 1 ? tokens : std::max<int64_t>(1, (int64_t(1) << 28) / token_floats);
  const Workspace::Scope scope(context.workspace);
  if (args.max_pieces > 1) {
    const int64_t items = std::min(tokens, per_launch) * args.max_pieces * heads;
    args.partial = data_of<float>(context.workspace.alloc(DType::f32, {items, latent}));
    args.partial_lse = data_of<float>(context.workspace.alloc(DType::f32, {items}));
  }
  for (int64_t first = 0; first < tokens; first += per_launch) {
    args.first_token = int32_t(first);
    args.last_token = int32_t(std::min(tokens, first + per_launch));
    // Up to two rounds of the clusters are faster than one piece a block; from four on they are slower. Same bits.
    if (args.piece_tokens == spread_keys && a.rows.max_new_tokens * heads <= spread_rows && tokens <= per_launch &&
        int64_t(args.num_rows) * args.max_pieces <= 2 * spread_clusters()) {
      args.group_pieces = 1, args.groups = args.max_pieces, args.merges = false;
      attend_spread(map, args, context);
      if (args.max_pieces > 1) merge_pieces(args, context);
      break;
    }
    if (args.piece_tokens == spread_keys && a.rows.max_new_tokens * heads <= narrow_rows && tokens <= per_launch &&
        a.q.strides[0] == heads * a.q.strides[1]) {
      args.merges = false;
      attend_narrow(map, args, processors, context);
      if (args.max_pieces > 1) merge_pieces(args, context);
      break;
    }
    const int64_t items = int64_t(args.row_tiles) * args.num_rows * args.groups;
    const auto kernel = heads >= rows ? mla<Pairs> : mla<Halves>;
    launch_kernel("paged_attention", kernel, {unsigned(std::min<int64_t>(items, processors)), threads, shared_bytes},
                  context, map, args);
    if (args.max_pieces > 1 && !args.merges) merge_pieces(args, context);
  }
}

}  // namespace

extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> mla_decode{"sm90.mla_decode", Level::sm90, supports,
                                                                               run};

}  // namespace medley::sm90
