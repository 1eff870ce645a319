// Paged attention with grouped queries on Hopper's matrix units, heads of 64 or 128, decode and prefill.
//
// Query rows are (token, head of the group) of one request and one key head: all of them want the same keys. A
// warpgroup holds 64 of them; keys and values come through a ring of buffers that another warp refills by bulk tensor
// copies. Requests with few new tokens (`Few`) have their keys cut into at most 16 pieces, which are added in ascending
// order by a second kernel; the others (`Many`) have enough rows to occupy the chip and walk their keys in one go.
// Which, and where pieces begin, follows from the request's own length and new tokens: its bits do not depend on its
// company.
#include <algorithm>

#include "kernels/attention.h"
#include "kernels/cuda/common.h"
#include "kernels/sm90/hopper.h"
#include "kernels/sm90/tensor_map.h"

namespace medley::cuda {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;
}  // namespace medley::cuda

namespace medley::sm90 {
namespace {

using cuda::blocks_for;
using cuda::check_launch;
using cuda::data_of;
using cuda::stream_of;

constexpr int rows_of_group = 64;  // query rows of a warpgroup: the M of the matrix instruction
constexpr int few_tokens = 4;      // at most so many new ones, and so many rows that one warpgroup holds them
constexpr int piece_unit = 512, most_pieces = 16;
constexpr unsigned all = 0xffffffffu;

struct Gqa {
  const float *q, *sinks;
  void* y;
  float *partial, *partial_lse;  // [rows][few_tokens][most_pieces][heads]: values normalised, base 2
  const int32_t *block_table, *row_offsets, *computed;
  int64_t q_token, q_head, y_token, y_head, table_stride;
  int32_t tokens_per_block, copy_rows, num_rows, heads, group, k_column, v_column, window;
  float scale_log2;
  bool y_bf16;
};

template <int dim_, bool few_>
struct Shape {
  static constexpr int dim = dim_;
  static constexpr bool few = few_;
  static constexpr int groups = few ? 1 : 2, keys = few ? 64 : 128, stages = few ? 3 : 2;
  static constexpr int consumers = groups * 128, threads = consumers + 128;
  static constexpr int column_tiles = dim / 64;  // 128 bytes each: the swizzle's width
  static constexpr int key_tile_bytes = keys * 128, key_bytes = column_tiles * key_tile_bytes;
  static constexpr int query_tile_bytes = rows_of_group * 128, query_bytes = column_tiles * query_tile_bytes;
  struct Shared {
    std::byte q[groups * query_bytes];
    std::byte k[stages][key_bytes], v[stages][key_bytes];
    uint64_t k_full[stages], v_full[stages], k_empty[stages], v_empty[stages];
  };
};

struct Work {
  int row, head;        // the request, and its key head
  int token, computed;  // the first new token, and what it had before
  int first, count;     // query rows, numbered token * group + head of the group
  int begin, end;       // keys
  int piece;
};

__device__ bool is_few(const Gqa& a, int fresh) {
  return fresh <= few_tokens && fresh * a.group <= rows_of_group;
}
// Keys of a piece, by the request's length after this step.
__device__ int piece_keys(int length) {
  return (length + piece_unit * most_pieces - 1) / (piece_unit * most_pieces) * piece_unit;
}
__device__ int first_key(const Gqa& a, int position) {
  return a.window > 0 ? max(0, position - a.window + 1) : 0;
}

// Block (key head, request, piece).
__device__ bool open_few(const Gqa& a, Work& work) {
  work.head = blockIdx.x, work.row = blockIdx.y, work.piece = blockIdx.z;
  work.token = a.row_offsets[work.row];
  const int fresh = a.row_offsets[work.row + 1] - work.token;
  if (fresh == 0 || !is_few(a, fresh)) return false;
  work.computed = a.computed[work.row];
  const int length = work.computed + fresh, each = piece_keys(length);
  work.first = 0, work.count = fresh * a.group;
  work.begin = work.piece * each;
  work.end = min(work.begin + each, length);
  const int seen = first_key(a, work.computed);
  if (seen >= work.end) return false;
  work.begin = max(work.begin, seen / Shape<64, true>::keys * Shape<64, true>::keys);
  return work.begin < work.end;
}

// Block (tile of 128 query rows of all requests with many, key head). The last tiles of a request see most keys and
// come first.
__device__ bool open_many(const Gqa& a, Work& work) {
  constexpr int tile_rows = 2 * rows_of_group;
  const int lane = threadIdx.x % 32;
  int index = blockIdx.x;
  for (int first = 0; first < a.num_rows; first += 32) {
    const int row = first + lane;
    const int fresh = row < a.num_rows ? a.row_offsets[row + 1] - a.row_offsets[row] : 0;
    const int tiles = is_few(a, fresh) ? 0 : (fresh * a.group + tile_rows - 1) / tile_rows;
    int upto = tiles;
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
    const int tile = __shfl_sync(all, upto, owner) - 1 - index;
    work.row = first + owner, work.head = blockIdx.y, work.piece = 0;
    work.token = a.row_offsets[work.row], work.computed = a.computed[work.row];
    const int rows = (a.row_offsets[work.row + 1] - work.token) * a.group;
    work.first = tile * tile_rows, work.count = min(tile_rows, rows - work.first);
    work.begin = first_key(a, work.computed + work.first / a.group) / 128 * 128;
    work.end = work.computed + (work.first + work.count - 1) / a.group + 1;
    return true;
  }
  return false;
}

// A warp: keys and values, runs of page rows x 64 columns a copy.
template <class S>
__device__ void feed(const CUtensorMap* map, const Gqa& a, typename S::Shared& shared, const Work& work) {
  const int lane = threadIdx.x % 32, runs = S::keys / a.copy_rows;
  const int32_t* table = a.block_table + work.row * a.table_stride;
  const int k_column = a.k_column + work.head * S::dim, v_column = a.v_column + work.head * S::dim;
  int stage = 0;
  uint32_t phase = 1;
  const auto copy = [&](std::byte* to, int column, int first, uint64_t* full, uint64_t* empty) {
    barrier_wait(empty, phase);
    if (lane == 0) barrier_expect(full, S::key_bytes);
    __syncwarp();
    for (int item = lane; item < runs * S::column_tiles; item += 32) {
      const int run = item % runs, tile = item / runs, key = first + run * a.copy_rows;
      int row = -S::keys;  // past the end: outside the tensor, which the copy engine reads as zeros
      if (key < work.end) row = table[key / a.tokens_per_block] + key % a.tokens_per_block;
      copy_box(to + tile * S::key_tile_bytes + run * a.copy_rows * 128, map, column + tile * 64, row, full);
    }
  };
  for (int first = work.begin; first < work.end; first += S::keys) {
    copy(shared.k[stage], k_column, first, &shared.k_full[stage], &shared.k_empty[stage]);
    copy(shared.v[stage], v_column, first, &shared.v_full[stage], &shared.v_empty[stage]);
    if (++stage == S::stages) stage = 0, phase ^= 1;
  }
}

// A warpgroup's query rows as bf16, swizzled; zeros past the last.
template <class S>
__device__ void load_queries(const Gqa& a, const Work& work, std::byte* to, int first, int count) {
  constexpr int fours = S::dim / 4, at_once = 4;
  for (int item = threadIdx.x % 128; item < rows_of_group * fours; item += 128 * at_once) {
    float4 values[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int row = (item + i * 128) / fours, four = (item + i * 128) % fours;
      const int token = work.token + (first + row) / a.group, head = work.head * a.group + (first + row) % a.group;
      values[i] = make_float4(0, 0, 0, 0);
      if (row < count)
        values[i] = __ldg(reinterpret_cast<const float4*>(a.q + token * a.q_token + head * a.q_head) + four);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int row = (item + i * 128) / fours, four = (item + i * 128) % fours;
      const __nv_bfloat162 low = __floats2bfloat162_rn(values[i].x, values[i].y),
                           high = __floats2bfloat162_rn(values[i].z, values[i].w);
      uint2 bits;
      memcpy(&bits.x, &low, 4);
      memcpy(&bits.y, &high, 4);
      std::byte* at = to + four / 16 * S::query_tile_bytes + row * 128 + ((four % 16 / 2) ^ (row % 8)) * 16;
      *reinterpret_cast<uint2*>(at + four % 2 * 8) = bits;
    }
  }
  fence_async_proxy();
  named_sync(1 + threadIdx.x / 128, 128);
}

// exp2f adds four instructions for denormal results.
__device__ float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(all, value, 1));
  return fmaxf(value, __shfl_xor_sync(all, value, 2));
}
__device__ float quad_sum(float value) {
  value += __shfl_xor_sync(all, value, 1);
  return value + __shfl_xor_sync(all, value, 2);
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
__device__ void weigh(const Gqa& a, int first, Softmax& softmax, float (&scores)[n], uint32_t (&weights)[n / 8][4],
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
    const float now = quad_max(highest[half]) * a.scale_log2, before = softmax.highest[half];
    if (now > before + rescale_above) softmax.highest[half] = now;
    base[half] = softmax.highest[half] == -INFINITY ? 0.0f : softmax.highest[half];  // none seen: weights exp2(-inf)
    rescale[half] = exp2(before - base[half]);
    softmax.total[half] *= rescale[half];
  }
#pragma unroll
  for (int i = 0; i < n; i += 2) {
    const int half = i / 2 % 2;
    const float x = exp2(fmaf(scores[i], a.scale_log2, -base[half])),
                y = exp2(fmaf(scores[i + 1], a.scale_log2, -base[half]));
    softmax.total[half] += x + y;
    const __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    memcpy(&weights[i / 8][i / 2 % 4], &two, 4);
  }
}

// Starts scores[64 queries x keys].
template <class S, int n>
__device__ void multiply_keys(typename S::Shared& shared, int group, int stage, uint32_t phase, float (&scores)[n]) {
  const uint64_t q = operand(shared_address(shared.q + group * S::query_bytes)),
                 k = operand(shared_address(shared.k[stage]));
  barrier_wait(&shared.k_full[stage], phase);
  hold(scores);
  wgmma_begin();
#pragma unroll
  for (int step = 0; step < S::dim / 16; ++step)
    wgmma_scores(scores, q + (uint64_t(step / 4 * S::query_tile_bytes + step % 4 * 32) >> 4),
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
  for (int item = threadIdx.x % 128; item < pieces * S::column_tiles; item += 128)
    *reinterpret_cast<uint4*>(values + item / pieces * S::key_tile_bytes + from * 128 + item % pieces * 16) =
        make_uint4(0, 0, 0, 0);
}

__device__ void write_two(const Gqa& a, int64_t at, float x, float y) {
  if (a.y_bf16) {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(a.y) + at) = __floats2bfloat162_rn(x, y);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(a.y) + at) = make_float2(x, y);
  }
}

// Where the first piece's result of a request's token and head lies; the next piece's, `heads` further on.
__device__ int64_t partial_item(const Gqa& a, int row, int local, int head) {
  return (int64_t(row) * few_tokens + local) * most_pieces * a.heads + head;
}

template <class S, int n>
__device__ void write_rows(const Gqa& a, const Work& work, int group, const Softmax& softmax, const float (&out)[n]) {
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = group * rows_of_group + warp * 16 + g + half * 8;
    float total = quad_sum(softmax.total[half]);
    if (row >= work.count) continue;
    const int local = (work.first + row) / a.group, head = work.head * a.group + (work.first + row) % a.group;
    const int token = work.token + local, position = work.computed + local;
    int first_piece = 0, last_piece = 0;
    if constexpr (S::few) {
      const int each = piece_keys(work.computed + work.count / a.group);
      first_piece = first_key(a, position) / each, last_piece = position / each;
      if (work.piece < first_piece || work.piece > last_piece) continue;  // not read
    }
    float highest = softmax.highest[half], scale = 1;
    if (a.sinks != nullptr && work.piece == first_piece) {  // a logit without a value
      const float sink = a.sinks[head] * 1.4426950408889634f, top = fmaxf(highest, sink);
      scale = exp2(highest - top);
      total = total * scale + exp2(sink - top);
      highest = top;
    }
    const float inverse = total > 0 ? scale / total : 0.0f;
    if (first_piece == last_piece) {
      const int64_t at = token * a.y_token + head * a.y_head + quad * 2;
#pragma unroll
      for (int j = 0; j < n / 4; ++j)
        write_two(a, at + j * 8, out[j * 4 + half * 2] * inverse, out[j * 4 + half * 2 + 1] * inverse);
    } else {
      const int64_t item = partial_item(a, work.row, local, head) + int64_t(work.piece) * a.heads;
      float* to = a.partial + item * S::dim + quad * 2;
#pragma unroll
      for (int j = 0; j < n / 4; ++j)
        *reinterpret_cast<float2*>(to + j * 8) =
            make_float2(out[j * 4 + half * 2] * inverse, out[j * 4 + half * 2 + 1] * inverse);
      if (quad == 0) a.partial_lse[item] = highest + log2f(total);
    }
  }
}

template <class S>
__device__ void attend(const Gqa& a, typename S::Shared& shared, const Work& work) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32;
  const int first_row = group * rows_of_group, row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4;
  load_queries<S>(a, work, shared.q + group * S::query_bytes, work.first + first_row, work.count - first_row);
  Softmax softmax;
  for (int half = 0; half < 2; ++half) {
    const int position = work.computed + (work.first + min(row + half * 8, work.count - 1)) / a.group;
    softmax.low[half] = first_key(a, position), softmax.limit[half] = min(position + 1, work.end);
  }
  float scores[S::keys / 2] = {}, out[S::dim / 2] = {};
  uint32_t weights[S::keys / 16][4];
  int stage = 0, first = work.begin;
  uint32_t phase = 0;
  const auto finish_scores = [&] {
    float rescale[2];
    if (lane == 0) barrier_arrive(&shared.k_empty[stage]);
    weigh(a, first, softmax, scores, weights, rescale);
    if (__any_sync(all, rescale[0] != 1.0f || rescale[1] != 1.0f)) {  // else products with 1
#pragma unroll
      for (int i = 0; i < S::dim / 2; ++i) out[i] *= rescale[i / 2 % 2];
    }
    barrier_wait(&shared.v_full[stage], phase);
    if (first + S::keys > work.end) {
      clear_values<S>(shared.v[stage], work.end - first);
      fence_async_proxy();
      named_sync(1 + group, 128);
    }
    hold(out);
    wgmma_begin();
  };
  multiply_keys<S>(shared, group, stage, phase, scores);
  wgmma_wait<0>();
  hold(scores);
  for (; first + S::keys < work.end; first += S::keys) {
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
  write_rows<S>(a, work, group, softmax, out);
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::few ? 2 : 1)
    gqa(const __grid_constant__ CUtensorMap map, const Gqa a) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename S::Shared*>(memory);
  Work work;
  if (!(S::few ? open_few(a, work) : open_many(a, work))) return;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::stages; ++stage) {
      barrier_init(&shared.k_full[stage], 1);
      barrier_init(&shared.v_full[stage], 1);
      barrier_init(&shared.k_empty[stage], S::consumers / 32);
      barrier_init(&shared.v_empty[stage], S::consumers / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= S::consumers) {
    registers_release<40>();
    if (threadIdx.x < S::consumers + 32) feed<S>(&map, a, shared, work);
  } else {
    registers_claim<S::few ? 208 : 232>();  // of 256 x 128 and of 384 x 168
    attend<S>(a, shared, work);
  }
}

// Adds the pieces in ascending order, weighted by their share of the sum. Four columns a thread.
template <int dim>
__global__ void __launch_bounds__(128) merge(Gqa a) {
  constexpr int lanes = dim / 4;
  const int head = blockIdx.x * (128 / lanes) + threadIdx.x / lanes, column = threadIdx.x % lanes * 4;
  const int row = blockIdx.y / few_tokens, local = blockIdx.y % few_tokens;
  const int token = a.row_offsets[row], fresh = a.row_offsets[row + 1] - token;
  if (head >= a.heads || local >= fresh || !is_few(a, fresh)) return;
  const int position = a.computed[row] + local, each = piece_keys(a.computed[row] + fresh);
  const int first = first_key(a, position) / each, last = position / each;
  if (first == last) return;  // written already
  const int64_t item = partial_item(a, row, local, head);
  float weights[most_pieces], highest = -INFINITY, total = 0;
  float4 values[most_pieces], sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int p = 0; p < most_pieces; ++p) {
    const bool used = p >= first && p <= last;
    const int64_t at = item + int64_t(p) * a.heads;
    weights[p] = used ? a.partial_lse[at] : -INFINITY;
    values[p] = used ? *reinterpret_cast<const float4*>(a.partial + at * dim + column) : make_float4(0, 0, 0, 0);
    highest = fmaxf(highest, weights[p]);
  }
#pragma unroll
  for (int p = 0; p < most_pieces; ++p) {
    const float weight = exp2f(weights[p] - highest);
    total += weight;
    sum.x = fmaf(weight, values[p].x, sum.x), sum.y = fmaf(weight, values[p].y, sum.y);
    sum.z = fmaf(weight, values[p].z, sum.z), sum.w = fmaf(weight, values[p].w, sum.w);
  }
  const float inverse = 1.0f / total;
  const int64_t at = (token + local) * a.y_token + head * a.y_head + column;
  write_two(a, at, sum.x * inverse, sum.y * inverse);
  write_two(a, at + 2, sum.z * inverse, sum.w * inverse);
}

template <class S>
void launch(const CUtensorMap& map, const Gqa& a, dim3 grid, cudaStream_t stream) {
  constexpr int bytes = sizeof(typename S::Shared);
  static const cudaError_t raised = cudaFuncSetAttribute(gqa<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (raised != cudaSuccess) fail("[paged_attention] CUDA: {}", cudaGetErrorString(raised));
  gqa<S><<<grid, S::threads, bytes, stream>>>(map, a);
}

template <int dim>
void launch_all(const CUtensorMap& map, Gqa args, const PagedAttentionArgs& a, ExecContext& context) {
  const cudaStream_t stream = stream_of(context);
  const unsigned kv_heads = unsigned(a.kv_heads), num_rows = unsigned(a.rows.num_rows);
  const int64_t most_new = a.rows.max_new_tokens;
  if (most_new > few_tokens || most_new * args.group > rows_of_group) {
    const int64_t tiles = a.rows.num_tokens * args.group / (2 * rows_of_group) + num_rows;
    launch<Shape<dim, false>>(map, args, dim3(unsigned(tiles), kv_heads), stream);
  }
  const unsigned pieces = unsigned(std::min<int64_t>(blocks_for(a.rows.max_context, piece_unit), most_pieces));
  const Workspace::Scope scope(context.workspace);
  if (pieces > 1) {
    const int64_t items = int64_t(num_rows) * few_tokens * most_pieces * args.heads;
    args.partial = data_of<float>(context.workspace.alloc(DType::f32, {items, dim}));
    args.partial_lse = data_of<float>(context.workspace.alloc(DType::f32, {items}));
  }
  launch<Shape<dim, true>>(map, args, dim3(kv_heads, num_rows, pieces), stream);
  if (pieces > 1)
    merge<dim><<<dim3(blocks_for(args.heads, 128 / (dim / 4)), num_rows * few_tokens), 128, 0, stream>>>(args);
  check_launch("paged_attention");
}

std::string supports(const PagedAttentionDesc& d) {
  if (d.k_dim != d.v_dim || (d.k_dim != 64 && d.k_dim != 128)) return "takes heads of 64 or 128 elements";
  if (d.cache != DType::bf16) return "takes a bf16 cache";
  if (d.softcap) return "has no soft cap";
  if (d.heads / d.kv_heads > rows_of_group) return fmt::format("takes at most {} heads a key head", rows_of_group);
  if (d.k_offset % 8 != 0 || d.v_offset % 8 != 0) return "takes keys and values at multiples of 16 bytes";
  return {};
}

void run(const PagedAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const bool fits = a.cache.tokens_per_block % 16 == 0 && a.cache.row_bytes % 16 == 0 && a.scale > 0 &&
                    reinterpret_cast<uintptr_t>(a.cache.base) % 16 == 0 &&
                    reinterpret_cast<uintptr_t>(a.q.data) % 16 == 0 && a.q.strides[0] % 4 == 0 &&
                    a.q.strides[1] % 4 == 0 && reinterpret_cast<uintptr_t>(a.y.data) % 8 == 0 &&
                    a.y.strides[0] % 2 == 0 && a.y.strides[1] % 2 == 0;
  if (!fits) return cuda::paged_attention.run(a, context);
  constexpr double log2_e = 1.4426950408889634;
  const int page = a.cache.tokens_per_block;
  const Gqa args{.q = data_of<float>(a.q),
                 .sinks = a.sinks,
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
                 .heads = int32_t(a.q.size(1)),
                 .group = int32_t(a.q.size(1) / a.kv_heads),
                 .k_column = int32_t(a.k_offset),
                 .v_column = int32_t(a.v_offset),
                 .window = a.window,
                 .scale_log2 = float(a.scale * log2_e),
                 .y_bf16 = a.y.dtype == DType::bf16};
  const CUtensorMap map = rows_map(a.cache.base, a.cache.row_bytes / 2, a.cache.row_bytes, 64, args.copy_rows);
  if (a.v_dim == 64) {
    launch_all<64>(map, args, a, context);
  } else {
    launch_all<128>(map, args, a, context);
  }
}

}  // namespace

extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> gqa_attention{"sm90.gqa_attention", Level::sm90,
                                                                                  supports, run};

}  // namespace medley::sm90
