// The indexer's choice of keys and attention over them.
//
// index_select: scores of all keys go to memory, lanes of a warp being heads; then a block a token finds the score of
// the last one chosen, eight bits at a time, and writes the chosen positions in order. All of it is exact in the
// scores' bits: equal scores go to the lower positions whatever the number of threads.
#include "kernels/sparse_attention.h"

#include "kernels/cuda/attend.h"

namespace medley::cuda {
namespace {

using attention::max_rows;
using attention::threads;
constexpr int warps = threads / 32;
constexpr int keys_at_once = 4;  // of one warp
constexpr int tile_keys = 64;    // of one block
constexpr unsigned all = 0xffffffffu;

struct Select {
  const float *q, *weights;
  const std::byte* base;
  const int32_t *block_table, *row_offsets, *computed;
  int32_t* selected;
  uint32_t* scores;  // [tokens of this launch, longest]
  int64_t q_token, q_head, weights_token, table_stride, row_bytes, selected_token, selected_count, longest;
  int64_t top_k;
  int32_t tokens_per_block, num_rows, heads, dim;
  int32_t first_token;  // of this launch

  __device__ int keys_of(int token, int& row) const {
    row = row_of(row_offsets, num_rows, token);
    return computed[row] + token - row_offsets[row] + 1;
  }
};

// Bits whose order as integers is the order of the floats; the two zeros are one.
__device__ uint32_t ordered_bits(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Block (tile of keys, token). Queries lie in shared memory with heads innermost, keys one after the other.
template <class T>
__global__ void __launch_bounds__(threads) score(Select a) {
  extern __shared__ float memory[];
  const int token = a.first_token + blockIdx.y, first = blockIdx.x * tile_keys;
  if (token >= a.row_offsets[a.num_rows]) return;
  int row;
  const int keys = a.keys_of(token, row), padded = (a.heads + 31) / 32 * 32;
  if (first >= keys || keys <= a.top_k) return;
  float* q = memory;                   // [dim][padded heads]
  float* k = memory + a.dim * padded;  // [tile_keys][dim]
  for (int i = threadIdx.x; i < padded * a.dim; i += threads) {
    const int head = i / a.dim, d = i % a.dim;
    q[d * padded + head] = head < a.heads ? a.q[token * a.q_token + head * a.q_head + d] : 0.0f;
  }
  const int count = min(tile_keys, keys - first);
  const int32_t* blocks = a.block_table + row * a.table_stride;
  for (int i = threadIdx.x; i < tile_keys * a.dim; i += threads) {
    const int key = first + i / a.dim;
    float value = 0;
    if (key < keys) {
      const int64_t slot = blocks[key / a.tokens_per_block] + key % a.tokens_per_block;
      value = to_float(reinterpret_cast<const T*>(a.base + slot * a.row_bytes)[i % a.dim]);
    }
    k[i] = value;
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int at = warp * keys_at_once; at < count; at += warps * keys_at_once) {
    float sums[keys_at_once] = {};
    for (int head = lane; head < padded; head += 32) {
      float dots[keys_at_once] = {};
      for (int d = 0; d < a.dim; ++d) {
        const float value = q[d * padded + head];
#pragma unroll
        for (int j = 0; j < keys_at_once; ++j) dots[j] = fmaf(value, k[(at + j) * a.dim + d], dots[j]);
      }
      const float weight = head < a.heads ? a.weights[token * a.weights_token + head] : 0.0f;
#pragma unroll
      for (int j = 0; j < keys_at_once; ++j) sums[j] += weight * fmaxf(dots[j], 0.0f);
    }
#pragma unroll
    for (int j = 0; j < keys_at_once; ++j) {
      const float sum = warp_sum(sums[j]);
      if (lane == 0 && at + j < count) a.scores[blockIdx.y * a.longest + first + at + j] = ordered_bits(sum);
    }
  }
}

// The sum of `value` over the threads before this one; `total` over all.
__device__ int block_scan(int value, int& total) {
  __shared__ int warp_totals[warps];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int upto = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(all, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_totals[warp] = upto;
  __syncthreads();
  int before = upto - value;
  total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += warp_totals[w];
    total += warp_totals[w];
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(threads) choose(Select a) {
  __shared__ int counts[256];
  __shared__ uint32_t prefix;
  __shared__ int wanted;
  const int token = a.first_token + blockIdx.x;
  if (token >= a.row_offsets[a.num_rows]) return;
  int row;
  const int keys = a.keys_of(token, row), count = int(min(int64_t(keys), a.top_k));
  int32_t* selected = a.selected + token * a.selected_token;
  for (int64_t i = count + threadIdx.x; i < a.selected_count; i += threads) selected[i] = -1;
  if (keys == count) {
    for (int i = threadIdx.x; i < count; i += threads) selected[i] = i;
    return;
  }
  const uint32_t* scores = a.scores + blockIdx.x * a.longest;
  if (threadIdx.x == 0) prefix = 0, wanted = count;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += threads) counts[i] = 0;
    __syncthreads();
    const uint32_t known = prefix;
    for (int i = threadIdx.x; i < keys; i += threads) {
      const uint32_t bits = scores[i];
      if (shift == 24 || bits >> (shift + 8) == known >> (shift + 8)) atomicAdd(&counts[bits >> shift & 255], 1);
    }
    __syncthreads();
    // Thread t looks at the digit 255 - t: how many scores have a higher one?
    static_assert(threads == 256);
    const int digit = 255 - int(threadIdx.x), mine = counts[digit], still = wanted;
    int total;
    const int above = block_scan(mine, total);
    if (above < still && still <= above + mine) {
      prefix = known | uint32_t(digit) << shift;
      wanted = still - above;  // of the scores that begin with this prefix
    }
    __syncthreads();
  }
  const uint32_t last = prefix;
  const int equals = wanted;  // as many scores equal to `last` are chosen, the first ones
  int seen_equal = 0, written = 0;
  for (int first = 0; first < keys; first += threads) {
    const int i = first + int(threadIdx.x);
    const uint32_t bits = i < keys ? scores[i] : 0;
    const bool equal = i < keys && bits == last, above = i < keys && bits > last;
    int total_equal, total_chosen;
    const int rank = seen_equal + block_scan(equal, total_equal);
    const bool chosen = above || (equal && rank < equals);
    const int place = written + block_scan(chosen, total_chosen);
    if (chosen) selected[place] = i;
    seen_equal += total_equal;
    written += total_chosen;
  }
}

int64_t score_bytes(int64_t heads, int64_t dim) {
  return ((heads + 31) / 32 * 32 + tile_keys) * dim * int64_t(sizeof(float));
}

std::string supports_select(const IndexSelectDesc& d) {
  if (score_bytes(d.heads, d.dim) > 160 << 10) return "queries of more than 160 KiB";
  return {};
}

void run_select(const IndexSelectArgs& a, ExecContext& context) {
  const int64_t tokens = a.rows.num_tokens, longest = std::max<int64_t>(a.rows.max_context, 1);
  if (tokens == 0) return;
  Select args{.q = data_of<float>(a.q),
              .weights = data_of<float>(a.weights),
              .base = a.cache.base,
              .block_table = data_of<int32_t>(a.cache.block_table),
              .row_offsets = data_of<int32_t>(a.rows.row_offsets),
              .computed = data_of<int32_t>(a.rows.computed),
              .selected = data_of<int32_t>(a.selected),
              .scores = nullptr,
              .q_token = a.q.strides[0],
              .q_head = a.q.strides[1],
              .weights_token = a.weights.strides[0],
              .table_stride = a.cache.block_table.strides[0],
              .row_bytes = a.cache.row_bytes,
              .selected_token = a.selected.strides[0],
              .selected_count = a.selected.size(1),
              .longest = longest,
              .top_k = a.top_k,
              .tokens_per_block = a.cache.tokens_per_block,
              .num_rows = int32_t(a.rows.num_rows),
              .heads = int32_t(a.q.size(1)),
              .dim = int32_t(a.q.size(2))};
  const bool scored = longest > a.top_k;
  // Long steps go through in parts, so that the scores stay within 256 MiB.
  const int64_t per_launch =
      std::min<int64_t>(scored ? std::max<int64_t>(1, (int64_t(1) << 26) / longest) : tokens, 65535);
  const Workspace::Scope scope(context.workspace);
  if (scored)
    args.scores = reinterpret_cast<uint32_t*>(
        data_of<int32_t>(context.workspace.alloc(DType::i32, {std::min(tokens, per_launch), longest})));
  const size_t bytes = size_t(score_bytes(args.heads, args.dim));
  for (int64_t first = 0; first < tokens; first += per_launch) {
    args.first_token = int32_t(first);
    const unsigned count = unsigned(std::min(per_launch, tokens - first));
    if (scored) {
      with_float_type(a.cache.dtype, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        static const cudaError_t raised =
            cudaFuncSetAttribute(score<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 << 10);
        MEDLEY_CHECK(raised == cudaSuccess);
        score<T><<<dim3(blocks_for(longest, tile_keys), count), threads, bytes, stream_of(context)>>>(args);
      });
    }
    choose<<<count, threads, 0, stream_of(context)>>>(args);
  }
  check_launch("index_select");
}

struct Sparse {
  const float* q;
  void* y;
  const std::byte* base;
  const int32_t *block_table, *row_offsets, *selected;
  int64_t q_token, q_head, y_token, y_head, table_stride, row_bytes, selected_token, selected_count;
  int64_t k_dim, v_dim, k_offset, v_offset;
  int32_t tokens_per_block, num_rows, heads, kv_heads;
  float scale;
};

// Block (token, kv head and part of its group).
template <class T, class Y>
__global__ void __launch_bounds__(threads) sparse(Sparse a) {
  extern __shared__ float q[];
  __shared__ attention::Shared shared;
  const int group = a.heads / a.kv_heads, parts = (group + max_rows - 1) / max_rows;
  const int token = blockIdx.x, kv_head = blockIdx.y / parts;
  const int head = kv_head * group + blockIdx.y % parts * max_rows;
  const int count = min(max_rows, (kv_head + 1) * group - head);
  if (token >= a.row_offsets[a.num_rows]) return;
  const int row = row_of(a.row_offsets, a.num_rows, token);
  const int32_t* blocks = a.block_table + row * a.table_stride;
  const int32_t* selected = a.selected + token * a.selected_token;
  int64_t low = 0, high = a.selected_count;  // the first -1
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (selected[middle] >= 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (int64_t i = threadIdx.x; i < count * a.k_dim; i += threads)
    q[i] = a.q[token * a.q_token + (head + i / a.k_dim) * a.q_head + i % a.k_dim];
  if (threadIdx.x < count) shared.highest[threadIdx.x] = -INFINITY, shared.total[threadIdx.x] = 0;
  __syncthreads();

  const auto cache_row = [&](int64_t i) {
    const int position = selected[i];
    const int64_t slot = blocks[position / a.tokens_per_block] + position % a.tokens_per_block;
    return reinterpret_cast<const T*>(a.base + slot * a.row_bytes);
  };
  const int64_t k_first = a.k_offset + kv_head * a.k_dim, v_first = a.v_offset + kv_head * a.v_dim;
  const attention::Rows rows{
      .rows = count, .scale = a.scale, .softcap = 0, .begin = 0, .end = low, .last_seen_step = 0, .last_seen = low};
  attention::Result result;
  attend(
      rows, q, a.k_dim, a.v_dim, [&](int64_t i, int64_t d) { return to_float(cache_row(i)[k_first + d]); },
      [&](int64_t i, int64_t d) { return to_float(cache_row(i)[v_first + d]); }, shared, result);
#pragma unroll
  for (int j = 0; j < attention::v_per_thread; ++j) {
    const int64_t d = threadIdx.x + j * threads;
    if (d >= a.v_dim) break;
#pragma unroll
    for (int r = 0; r < max_rows; ++r)
      if (r < count)
        store(static_cast<Y*>(a.y) + token * a.y_token + (head + r) * a.y_head + d, result.sum[r][j] / shared.total[r]);
  }
}

std::string supports_sparse(const SparseAttentionDesc& d) {
  if (d.v_dim > attention::largest_v) return fmt::format("values of more than {} elements", attention::largest_v);
  if (d.k_dim > 1024) return "keys of more than 1024 elements";
  return {};
}

void run_sparse(const SparseAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const int heads = int(a.q.size(1)), group = heads / int(a.kv_heads);
  const Sparse args{.q = data_of<float>(a.q),
                    .y = a.y.data,
                    .base = a.cache.base,
                    .block_table = data_of<int32_t>(a.cache.block_table),
                    .row_offsets = data_of<int32_t>(a.rows.row_offsets),
                    .selected = data_of<int32_t>(a.selected),
                    .q_token = a.q.strides[0],
                    .q_head = a.q.strides[1],
                    .y_token = a.y.strides[0],
                    .y_head = a.y.strides[1],
                    .table_stride = a.cache.block_table.strides[0],
                    .row_bytes = a.cache.row_bytes,
                    .selected_token = a.selected.strides[0],
                    .selected_count = a.selected.size(1),
                    .k_dim = a.q.size(2),
                    .v_dim = a.v_dim,
                    .k_offset = a.k_offset,
                    .v_offset = a.v_offset,
                    .tokens_per_block = a.cache.tokens_per_block,
                    .num_rows = int32_t(a.rows.num_rows),
                    .heads = heads,
                    .kv_heads = int32_t(a.kv_heads),
                    .scale = a.scale};
  const dim3 grid(unsigned(a.q.size(0)), unsigned(a.kv_heads) * blocks_for(group, max_rows));
  with_float_type(a.cache.dtype, [&](auto* type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using T = std::remove_pointer_t<decltype(type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      sparse<T, Y><<<grid, threads, size_t(max_rows) * args.k_dim * sizeof(float), stream_of(context)>>>(args);
    });
  });
  check_launch("sparse_attention");
}

}  // namespace

extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select{"cuda.index_select", Level::cuda,
                                                                           supports_select, run_select};
extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention{
    "cuda.sparse_attention", Level::cuda, supports_sparse, run_sparse};

}  // namespace medley::cuda
