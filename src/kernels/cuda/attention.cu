// Attention without matrix instructions, for any head size up to 512, any dtype and every option: the CUDA path that
// always exists. A block holds up to eight query rows that share their keys (heads of one group, or neighbouring
// queries of one head) and walks the keys in tiles from a start that depends on the query's own position alone.
#include "kernels/attention.h"

#include "kernels/cuda/attend.h"

namespace medley::cuda {
namespace {

using namespace attention;

struct Paged {
  const float* q;
  void* y;
  const float* sinks;
  const std::byte* base;
  const int32_t *block_table, *row_offsets, *computed;
  int64_t q_token, q_head, y_token, y_head, table_stride, row_bytes;
  int64_t k_dim, v_dim, k_offset, v_offset;
  int32_t tokens_per_block, num_rows, heads, kv_heads, window;
  float scale, softcap;
};

// Block (token, kv head and part of its group).
template <class T, class Y>
__global__ void __launch_bounds__(threads) paged(Paged a) {
  extern __shared__ float q[];
  __shared__ Shared shared;
  const int group = a.heads / a.kv_heads, parts = (group + max_rows - 1) / max_rows;
  const int token = blockIdx.x, kv_head = blockIdx.y / parts;
  const int head = kv_head * group + blockIdx.y % parts * max_rows;
  const int count = min(max_rows, (kv_head + 1) * group - head);
  if (token >= a.row_offsets[a.num_rows]) return;  // padding of a recorded step
  const int row = row_of(a.row_offsets, a.num_rows, token);
  const int64_t position = a.computed[row] + token - a.row_offsets[row];
  const int32_t* blocks = a.block_table + row * a.table_stride;

  for (int64_t i = threadIdx.x; i < count * a.k_dim; i += threads)
    q[i] = a.q[token * a.q_token + (head + i / a.k_dim) * a.q_head + i % a.k_dim];
  if (threadIdx.x < count) {
    const float sink = a.sinks != nullptr ? a.sinks[head + threadIdx.x] : -INFINITY;
    shared.highest[threadIdx.x] = sink;
    shared.total[threadIdx.x] = a.sinks != nullptr ? 1.0f : 0.0f;
  }
  __syncthreads();

  const auto cache_row = [&](int64_t key) {
    const int64_t slot = blocks[key / a.tokens_per_block] + key % a.tokens_per_block;
    return reinterpret_cast<const T*>(a.base + slot * a.row_bytes);
  };
  const int64_t k_first = a.k_offset + kv_head * a.k_dim, v_first = a.v_offset + kv_head * a.v_dim;
  const Rows rows{.rows = count,
                  .scale = a.scale,
                  .softcap = a.softcap,
                  .begin = a.window > 0 ? max(int64_t(0), position - a.window + 1) : 0,
                  .end = position + 1,
                  .last_seen_step = 0,
                  .last_seen = position};
  Result result;
  attend(
      rows, q, a.k_dim, a.v_dim, [&](int64_t key, int64_t d) { return to_float(cache_row(key)[k_first + d]); },
      [&](int64_t key, int64_t d) { return to_float(cache_row(key)[v_first + d]); }, shared, result);
#pragma unroll
  for (int j = 0; j < v_per_thread; ++j) {
    const int64_t d = threadIdx.x + j * threads;
    if (d >= a.v_dim) break;
#pragma unroll
    for (int r = 0; r < max_rows; ++r)
      if (r < count)
        store(static_cast<Y*>(a.y) + token * a.y_token + (head + r) * a.y_head + d, result.sum[r][j] / shared.total[r]);
  }
}

std::string supports_paged(const PagedAttentionDesc& d) {
  if (d.v_dim > largest_v) return fmt::format("values of more than {} elements", largest_v);
  if (d.k_dim > 1024) return "keys of more than 1024 elements";
  return {};
}

void run_paged(const PagedAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const int heads = int(a.q.size(1)), group = heads / int(a.kv_heads);
  const Paged args{.q = data_of<float>(a.q),
                   .y = a.y.data,
                   .sinks = a.sinks,
                   .base = a.cache.base,
                   .block_table = data_of<int32_t>(a.cache.block_table),
                   .row_offsets = data_of<int32_t>(a.rows.row_offsets),
                   .computed = data_of<int32_t>(a.rows.computed),
                   .q_token = a.q.strides[0],
                   .q_head = a.q.strides[1],
                   .y_token = a.y.strides[0],
                   .y_head = a.y.strides[1],
                   .table_stride = a.cache.block_table.strides[0],
                   .row_bytes = a.cache.row_bytes,
                   .k_dim = a.q.size(2),
                   .v_dim = a.v_dim,
                   .k_offset = a.k_offset,
                   .v_offset = a.v_offset,
                   .tokens_per_block = a.cache.tokens_per_block,
                   .num_rows = int32_t(a.rows.num_rows),
                   .heads = heads,
                   .kv_heads = int32_t(a.kv_heads),
                   .window = a.window,
                   .scale = a.scale,
                   .softcap = a.softcap};
  const dim3 grid(unsigned(a.q.size(0)), unsigned(a.kv_heads) * blocks_for(group, max_rows));
  with_float_type(a.cache.dtype, [&](auto* type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using T = std::remove_pointer_t<decltype(type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      paged<T, Y><<<grid, threads, size_t(max_rows) * args.k_dim * sizeof(float), stream_of(context)>>>(args);
    });
  });
  check_launch("paged_attention");
}

struct Piece {
  const float* q;
  const void *k_nope, *k_rope, *v;
  float *y, *lse;
  int64_t q_token, q_head, k_token, k_head, rope_token, v_token, v_head, y_token, y_head, lse_token;
  int64_t queries, keys, nope_dim, rope_dim, v_dim, q_position, k_position;
  float scale;
  bool first;
};

// Block (eight queries, head).
template <class T>
__global__ void __launch_bounds__(threads) piece(Piece a) {
  extern __shared__ float q[];
  __shared__ Shared shared;
  const int64_t query = int64_t(blockIdx.x) * max_rows, head = blockIdx.y, k_dim = a.nope_dim + a.rope_dim;
  const int count = int(min(int64_t(max_rows), a.queries - query));
  for (int64_t i = threadIdx.x; i < count * k_dim; i += threads)
    q[i] = a.q[(query + i / k_dim) * a.q_token + head * a.q_head + i % k_dim];
  if (threadIdx.x < max_rows) {
    shared.highest[threadIdx.x] = -INFINITY;
    shared.total[threadIdx.x] = 0;
  }
  __syncthreads();

  const T* nope = static_cast<const T*>(a.k_nope) + head * a.k_head;
  const T* rope = static_cast<const T*>(a.k_rope);
  const T* v = static_cast<const T*>(a.v) + head * a.v_head;
  const int64_t last_seen = a.q_position + query - a.k_position;
  const Rows rows{.rows = count,
                  .scale = a.scale,
                  .softcap = 0,
                  .begin = 0,
                  .end = max(int64_t(0), min(a.keys, last_seen + count)),
                  .last_seen_step = 1,
                  .last_seen = last_seen};
  Result result;
  attend(
      rows, q, k_dim, a.v_dim,
      [&](int64_t key, int64_t d) {
        return to_float(d < a.nope_dim ? nope[key * a.k_token + d] : rope[key * a.rope_token + d - a.nope_dim]);
      },
      [&](int64_t key, int64_t d) { return to_float(v[key * a.v_token + d]); }, shared, result);

#pragma unroll
  for (int r = 0; r < max_rows; ++r) {
    if (r >= count) break;
    const bool seen = shared.total[r] > 0;
    float* lse = a.lse + (query + r) * a.lse_token + head;
    const float before = a.first ? -INFINITY : *lse;
    const float mine = seen ? shared.highest[r] + logf(shared.total[r]) : -INFINITY;
    const float top = fmaxf(before, mine);
    const float merged = top == -INFINITY ? top : top + logf(expf(before - top) + expf(mine - top));
    const float old_share = before == -INFINITY ? 0.0f : expf(before - merged);
    const float share = seen ? expf(mine - merged) / shared.total[r] : 0.0f;
    float* y = a.y + (query + r) * a.y_token + head * a.y_head;
#pragma unroll
    for (int j = 0; j < v_per_thread; ++j) {
      const int64_t d = threadIdx.x + j * threads;
      if (d >= a.v_dim) break;
      const float old = a.first ? 0.0f : y[d] * old_share;  // never multiplies memory nothing wrote
      y[d] = seen ? old + result.sum[r][j] * share : (a.first ? 0.0f : y[d]);
    }
    __syncthreads();  // every thread has read the old lse
    if (threadIdx.x == 0) *lse = merged;
  }
}

std::string supports_piece(const PieceAttentionDesc& d) {
  if (d.v_dim > largest_v) return fmt::format("values of more than {} elements", largest_v);
  if (d.nope_dim + d.rope_dim > 1024) return "keys of more than 1024 elements";
  return {};
}

void run_piece(const PieceAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const Piece args{.q = data_of<float>(a.q),
                   .k_nope = a.k_nope.data,
                   .k_rope = a.k_rope.data,
                   .v = a.v.data,
                   .y = data_of<float>(a.y),
                   .lse = data_of<float>(a.lse),
                   .q_token = a.q.strides[0],
                   .q_head = a.q.strides[1],
                   .k_token = a.k_nope.strides[0],
                   .k_head = a.k_nope.strides[1],
                   .rope_token = a.k_rope.strides[0],
                   .v_token = a.v.strides[0],
                   .v_head = a.v.strides[1],
                   .y_token = a.y.strides[0],
                   .y_head = a.y.strides[1],
                   .lse_token = a.lse.strides[0],
                   .queries = a.q.size(0),
                   .keys = a.k_nope.size(0),
                   .nope_dim = a.k_nope.size(2),
                   .rope_dim = a.k_rope.size(1),
                   .v_dim = a.v.size(2),
                   .q_position = a.q_position,
                   .k_position = a.k_position,
                   .scale = a.scale,
                   .first = a.first};
  const dim3 grid(blocks_for(args.queries, max_rows), unsigned(a.q.size(1)));
  const size_t bytes = size_t(max_rows) * size_t(args.nope_dim + args.rope_dim) * sizeof(float);
  with_float_type(a.k_nope.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    piece<T><<<grid, threads, bytes, stream_of(context)>>>(args);
  });
  check_launch("piece_attention");
}

}  // namespace

extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention{"cuda.paged_attention", Level::cuda,
                                                                                    supports_paged, run_paged};
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{"cuda.piece_attention", Level::cuda,
                                                                                    supports_piece, run_piece};

}  // namespace medley::cuda
