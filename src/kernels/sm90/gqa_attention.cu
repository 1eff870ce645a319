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
#include "kernels/sm90/attention_tile.h"
#include "kernels/sm90/tensor_map.h"

namespace medley::cuda {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;
}  // namespace medley::cuda

namespace medley::sm90 {
namespace {

using cuda::blocks_for;
using cuda::data_of;
using cuda::follow_previous;

constexpr int few_tokens = 4;  // at most so many new ones, and so many rows that one warpgroup holds them
constexpr int piece_unit = 512, most_pieces = 16;

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
  static constexpr int column_tiles = dim / 64, k_tiles = column_tiles, v_tiles = column_tiles;
  static constexpr int key_tile_bytes = keys * 128, key_bytes = column_tiles * key_tile_bytes;
  static constexpr int query_bytes = column_tiles * query_tile_bytes;
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
      const int other = __shfl_up_sync(full_warp, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned found = __ballot_sync(full_warp, index < upto);
    if (found == 0) {
      index -= __shfl_sync(full_warp, upto, 31);
      continue;
    }
    const int owner = __ffs(found) - 1;
    const int tile = __shfl_sync(full_warp, upto, owner) - 1 - index;
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
  let_next_start();
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
  load_queries<S>(shared.q + group * S::query_bytes, work.count - first_row, [&](int r) {
    const int item = work.first + first_row + r;
    return a.q + (work.token + item / a.group) * a.q_token + (work.head * a.group + item % a.group) * a.q_head;
  });
  Softmax softmax;
  for (int half = 0; half < 2; ++half) {
    const int position = work.computed + (work.first + min(row + half * 8, work.count - 1)) / a.group;
    softmax.low[half] = first_key(a, position), softmax.limit[half] = min(position + 1, work.end);
  }
  float out[S::dim / 2] = {};
  walk<S>(shared, group, a.scale_log2, work.begin, work.end, softmax, out);
  write_rows<S>(a, work, group, softmax, out);
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::few ? 2 : 1)
    gqa(const __grid_constant__ CUtensorMap map, const Gqa a) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<typename S::Shared*>(memory);
  wait_for_previous();
  Work work;
  if (!(S::few ? open_few(a, work) : open_many(a, work))) return;
  if (threadIdx.x == 0) init_barriers<S>(shared);
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
  follow_previous();
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
void launch(const CUtensorMap& map, const Gqa& a, dim3 grid, ExecContext& context) {
  constexpr int bytes = sizeof(typename S::Shared);
  static const cudaError_t raised = cudaFuncSetAttribute(gqa<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (raised != cudaSuccess) fail("[paged_attention] CUDA: {}", cudaGetErrorString(raised));
  launch_kernel("paged_attention", gqa<S>, {grid, S::threads, bytes}, context, map, a);
}

template <int dim>
void launch_all(const CUtensorMap& map, Gqa args, const PagedAttentionArgs& a, ExecContext& context) {
  const unsigned kv_heads = unsigned(a.kv_heads), num_rows = unsigned(a.rows.num_rows);
  const int64_t most_new = a.rows.max_new_tokens;
  if (most_new > few_tokens || most_new * args.group > rows_of_group) {
    const int64_t tiles = a.rows.num_tokens * args.group / (2 * rows_of_group) + num_rows;
    launch<Shape<dim, false>>(map, args, dim3(unsigned(tiles), kv_heads), context);
  }
  const unsigned pieces = unsigned(std::min<int64_t>(blocks_for(a.rows.max_context, piece_unit), most_pieces));
  const Workspace::Scope scope(context.workspace);
  if (pieces > 1) {
    const int64_t items = int64_t(num_rows) * few_tokens * most_pieces * args.heads;
    args.partial = data_of<float>(context.workspace.alloc(DType::f32, {items, dim}));
    args.partial_lse = data_of<float>(context.workspace.alloc(DType::f32, {items}));
  }
  launch<Shape<dim, true>>(map, args, dim3(kv_heads, num_rows, pieces), context);
  if (pieces > 1)
    launch_kernel("paged_attention", merge<dim>,
                  {dim3(blocks_for(args.heads, 128 / (dim / 4)), num_rows * few_tokens), 128}, context, args);
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
