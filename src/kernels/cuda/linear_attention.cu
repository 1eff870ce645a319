// Matrix-valued states in token order, in registers for the length of the chunk: memory is read and written once, which
// is what a decode step costs. A block holds up to 128 columns (elements of v) of a head's state: a lane four columns,
// a warp a quarter of the rows (elements of k). A sum over k is four warps' sums added in order: nothing but k_dim
// decides the order of additions.
#include "kernels/linear_attention.h"

#include <climits>

#include "kernels/cuda/delta_chunks.h"
#include "kernels/cuda/state_slots.h"

namespace medley::cuda {
namespace {

constexpr int threads = 128, warps = 4;
constexpr int columns = 128;  // of a block
constexpr int64_t largest_k = 256;

enum class Rule { delta, delta_per_channel, lightning };

struct Scan {
  const float *q, *k, *v, *dt, *beta, *a, *dt_bias;  // lightning: a is the decay
  float* y;
  States state;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, dt_token, dt_head, beta_token, y_token, y_head;
  int heads, key_heads, k_dim, v_dim;
  float scale, l2_eps;
  int most_tokens;  // rows with more are another kernel's
};

// Four neighbouring columns of a row of the state.
template <bool vectors>
__device__ float4 read_four(const float* from, int left) {
  if constexpr (vectors) return left > 0 ? __ldcs(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
  return make_float4(left > 0 ? from[0] : 0.0f, left > 1 ? from[1] : 0.0f, left > 2 ? from[2] : 0.0f,
                     left > 3 ? from[3] : 0.0f);
}
template <bool vectors>
__device__ void write_four(float* to, int left, float4 value) {
  if constexpr (vectors) {
    if (left > 0) __stcs(reinterpret_cast<float4*>(to), value);
  } else {
    if (left > 0) to[0] = value.x;
    if (left > 1) to[1] = value.y;
    if (left > 2) to[2] = value.z;
    if (left > 3) to[3] = value.w;
  }
}
__device__ float4 scaled(float4 x, float by) {
  return make_float4(x.x * by, x.y * by, x.z * by, x.w * by);
}
__device__ void add_scaled(float4& to, float4 x, float by) {
  to.x = fmaf(x.x, by, to.x), to.y = fmaf(x.y, by, to.y), to.z = fmaf(x.z, by, to.z), to.w = fmaf(x.w, by, to.w);
}

template <int max_k>
struct Shared {
  float k[2][max_k], q[2][max_k], decay[2][max_k];
  float seen[warps][columns], out[warps][columns];  // each warp's rows of S^T k and S^T q
};

// Sums of the four warps for this lane's columns.
__device__ float4 add_warps(const float (&parts)[warps][columns], int lane) {
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int w = 0; w < warps; ++w) add_scaled(sum, *reinterpret_cast<const float4*>(&parts[w][lane * 4]), 1.0f);
  return sum;
}

// Block (head, row, columns). One warp prepares k and the decays of the next token, another q, while this token's are
// used.
template <int max_k, Rule rule, bool vectors>
__global__ void __launch_bounds__(threads, max_k <= 128 ? 3 : 1) scan(Scan a) {
  constexpr int each = max_k / 32, rows = max_k / warps;
  constexpr bool delta = rule != Rule::lightning, per_channel = rule == Rule::delta_per_channel;
  __shared__ __align__(16) Shared<max_k> shared;
  const int head = blockIdx.x, row = blockIdx.y, first_column = blockIdx.z * columns;
  const int begin = a.state.row_offsets[row], end = a.state.row_offsets[row + 1];
  if (end - begin > a.most_tokens) return;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int key_head = head / (a.heads / a.key_heads);
  const int left = a.v_dim - first_column - lane * 4, first_row = warp * rows;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int64_t offset = (int64_t(head) * a.k_dim + first_row) * a.v_dim + first_column + lane * 4;
  float4 state[rows];
#pragma unroll
  for (int i = 0; i < rows; ++i) {
    const bool used = read != nullptr && first_row + i < a.k_dim;
    state[i] = read_four<vectors>(read + offset + int64_t(i) * a.v_dim, used ? left : 0);
  }

  const float rate = a.a[head];
  float vector[each], dts[each];  // of the next token
  float4 v = make_float4(0, 0, 0, 0);
  float beta = 0;
  const auto load = [&](int64_t t) {
    if (warp < 2) {
      const float* from =
          warp == 0 ? a.k + t * a.k_token + key_head * a.k_head : a.q + t * a.q_token + key_head * a.q_head;
      const float* dt = a.dt + t * a.dt_token + head * a.dt_head;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        const int at = lane + i * 32;
        vector[i] = at < a.k_dim ? from[at] : 0.0f;
        if (per_channel) dts[i] = warp == 0 && at < a.k_dim ? dt[at] : 0.0f;
      }
      if (rule == Rule::delta) dts[0] = dt[0];
    }
    v = read_four<false>(a.v + t * a.v_token + head * a.v_head + first_column + lane * 4, left);
    if (delta) beta = a.beta[t * a.beta_token + head];
  };
  const auto prepare = [&](int buffer) {
    if (warp >= 2) return;
    float* to = warp == 0 ? shared.k[buffer] : shared.q[buffer];
    float factor = 1;
    if (delta) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < each; ++i) squares += vector[i] * vector[i];
      factor = (warp == 0 ? 1.0f : a.scale) / sqrtf(warp_sum(squares) + a.l2_eps);
    }
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int at = lane + i * 32;
      to[at] = vector[i] * factor;
      if (per_channel && warp == 0)
        shared.decay[buffer][at] = at < a.k_dim ? expf(rate * softplus(dts[i] + a.dt_bias[head * a.k_dim + at])) : 0.0f;
    }
    if (rule == Rule::delta && threadIdx.x == 0)
      shared.decay[buffer][0] = expf(rate * softplus(dts[0] + a.dt_bias[head]));
  };
  if (begin < end) {
    load(begin);
    prepare(0);
  }
  __syncthreads();
  for (int t = begin; t < end; ++t) {
    const int buffer = (t - begin) % 2;
    const float *k = shared.k[buffer] + first_row, *q = shared.q[buffer] + first_row;
    const float own_beta = delta ? sigmoid(beta) : 1.0f;
    const float4 own_v = v;
    if (t + 1 < end) load(t + 1);

    float4 change = own_v;
    if constexpr (delta) {
      float4 seen = make_float4(0, 0, 0, 0);
      const float decay = shared.decay[buffer][0];
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        state[i] = scaled(state[i], per_channel ? shared.decay[buffer][first_row + i] : decay);
        add_scaled(seen, state[i], k[i]);
      }
      *reinterpret_cast<float4*>(&shared.seen[warp][lane * 4]) = seen;
      __syncthreads();
      add_scaled(change, add_warps(shared.seen, lane), -1.0f);
      change = scaled(change, own_beta);
    } else {
#pragma unroll
      for (int i = 0; i < rows; ++i) state[i] = scaled(state[i], rate);
    }
    float4 out = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      add_scaled(state[i], change, k[i]);
      add_scaled(out, state[i], q[i]);
    }
    *reinterpret_cast<float4*>(&shared.out[warp][lane * 4]) = out;
    if (t + 1 < end) prepare(1 - buffer);
    __syncthreads();
    if (warp == t % warps)
      write_four<false>(a.y + t * a.y_token + head * a.y_head + first_column + lane * 4, left,
                        add_warps(shared.out, lane));
    if constexpr (!delta) __syncthreads();  // else the next token's first barrier keeps the sums until they are read
  }
  if (write == nullptr) return;
#pragma unroll
  for (int i = 0; i < rows; ++i)
    write_four<vectors>(write + offset + int64_t(i) * a.v_dim, first_row + i < a.k_dim ? left : 0, state[i]);
}

template <class F>
void with_k_dim(int64_t k_dim, F&& f) {
  if (k_dim <= 32) return f(std::integral_constant<int, 32>());
  if (k_dim <= 64) return f(std::integral_constant<int, 64>());
  if (k_dim <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, int(largest_k)>());
}

template <Rule rule>
void launch_scan(const Scan& a, int64_t num_rows, ExecContext& context) {
  const dim3 grid(unsigned(a.heads), unsigned(num_rows), blocks_for(a.v_dim, columns));
  const bool vectors =
      a.v_dim % 4 == 0 && (reinterpret_cast<uintptr_t>(a.state.base) + uintptr_t(a.state.offset)) % 16 == 0;
  with_k_dim(a.k_dim, [&](auto size) {
    if (vectors) {
      scan<size(), rule, true><<<grid, threads, 0, stream_of(context)>>>(a);
    } else {
      scan<size(), rule, false><<<grid, threads, 0, stream_of(context)>>>(a);
    }
  });
}

std::string supports_delta(const GatedDeltaDesc& d) {
  if (d.k_dim > largest_k) return fmt::format("keys of more than {} elements", largest_k);
  return {};
}

void run_delta(const GatedDeltaArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.v.size(1) * a.v.size(2) == 0) return;
  const bool chunks = delta_takes_chunks(a);
  const Scan args{.q = data_of<float>(a.q),
                  .k = data_of<float>(a.k),
                  .v = data_of<float>(a.v),
                  .dt = data_of<float>(a.dt),
                  .beta = data_of<float>(a.beta),
                  .a = a.a,
                  .dt_bias = a.dt_bias,
                  .y = data_of<float>(a.y),
                  .state = states_of(a.rows, a.state),
                  .q_token = a.q.strides[0],
                  .q_head = a.q.strides[1],
                  .k_token = a.k.strides[0],
                  .k_head = a.k.strides[1],
                  .v_token = a.v.strides[0],
                  .v_head = a.v.strides[1],
                  .dt_token = a.dt.strides[0],
                  .dt_head = a.dt.strides[1],
                  .beta_token = a.beta.strides[0],
                  .y_token = a.y.strides[0],
                  .y_head = a.y.strides[1],
                  .heads = int(a.v.size(1)),
                  .key_heads = int(a.k.size(1)),
                  .k_dim = int(a.k.size(2)),
                  .v_dim = int(a.v.size(2)),
                  .scale = a.scale,
                  .l2_eps = a.l2_eps,
                  .most_tokens = chunks ? chunk_tokens - 1 : INT_MAX};
  if (chunks && a.rows.max_new_tokens >= chunk_tokens) delta_by_chunks(a, context);
  // One channel: its decay is the head's.
  if (a.dt.size(2) > 1) {
    launch_scan<Rule::delta_per_channel>(args, a.rows.num_rows, context);
  } else {
    launch_scan<Rule::delta>(args, a.rows.num_rows, context);
  }
  check_launch("gated_delta_scan");
}

// The columns of a state by threads of a block, all rows in registers.
template <int max_k>
__device__ void read_column(const float* from, int64_t stride, int k_dim, bool used, float (&state)[max_k]) {
#pragma unroll
  for (int i = 0; i < max_k; ++i) state[i] = used && i < k_dim ? from[i * stride] : 0.0f;
}
template <int max_k>
__device__ void write_column(float* to, int64_t stride, int k_dim, const float (&state)[max_k]) {
#pragma unroll
  for (int i = 0; i < max_k; ++i)
    if (i < k_dim) to[i * stride] = state[i];
}

struct Lightning {
  const float *q, *k, *v;
  LightningTables tables;
  float* y;
  States state;
  const int32_t* computed;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, y_token, y_head;
  int k_dim, v_dim;
};

constexpr int block_threads = 256;
constexpr int sums_at_once = 16;

// Keys or values of a head by place: new ones lie in the step's tensor, earlier ones in the state.
struct Places {
  const float *state, *fresh;  // fresh: of the row's first new token
  int64_t fresh_stride;
  int dim, computed;

  __device__ const float* at(int place, int position) const {
    return position >= computed ? fresh + (position - computed) * fresh_stride : state + int64_t(place) * dim;
  }
};

// By blocks of positions. Block (head, row); a thread a column.
template <int max_k>
__global__ void __launch_bounds__(block_threads) lightning_by_blocks(Lightning a) {
  extern __shared__ __align__(16) float scores[];  // [tables.block], then q [max_k]
  const int head = blockIdx.x, row = blockIdx.y, column = threadIdx.x, size = int(a.tables.block);
  float* q = scores + (size + 3) / 4 * 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool used = column < a.v_dim;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int64_t matrix = int64_t(a.k_dim) * a.v_dim, keys = int64_t(size) * a.k_dim, values = int64_t(size) * a.v_dim;
  const int64_t offset = head * (matrix + keys + values);
  float state[max_k];
  read_column(read + offset + column, a.v_dim, a.k_dim, used && read != nullptr, state);

  const int begin = a.state.row_offsets[row], end = a.state.row_offsets[row + 1], computed = a.computed[row];
  const Places k{read + offset + matrix, a.k + begin * a.k_token + head * a.k_head, a.k_token, a.k_dim,
                 read != nullptr ? computed : 0};
  const Places v{read + offset + matrix + keys, a.v + begin * a.v_token + head * a.v_head, a.v_token, a.v_dim,
                 read != nullptr ? computed : 0};
  const float* diagonal = a.tables.diagonal + int64_t(head) * size * size;
  const float* key_decay = a.tables.key + int64_t(head) * size;
  for (int t = begin, position = computed; t < end; ++t, ++position) {
    const int place = position % size, block_begin = position - place;
    if (place == 0 && position > 0) {  // S of this block
      const float block_decay = a.tables.block_decay[head];
#pragma unroll
      for (int first = 0; first < max_k; first += sums_at_once) {
        if (first >= a.k_dim) break;
        float sums[sums_at_once] = {};
        for (int j = 0; j < size && used; ++j) {
          const float* key = k.at(j, position - size + j);
          const float value = v.at(j, position - size + j)[column], weight = key_decay[j];
#pragma unroll
          for (int i = 0; i < sums_at_once; ++i)
            if (first + i < a.k_dim) sums[i] += weight * key[first + i] * value;
        }
#pragma unroll
        for (int i = 0; i < sums_at_once; ++i) state[first + i] = block_decay * state[first + i] + sums[i];
      }
    }
    __syncthreads();  // the scores and q before have been read
    for (int i = threadIdx.x; i < max_k; i += block_threads)
      q[i] = i < a.k_dim ? a.q[t * a.q_token + head * a.q_head + i] : 0.0f;
    __syncthreads();
    for (int j = warp; j <= place; j += block_threads / 32) {
      const float* key = k.at(j, block_begin + j);
      float dot = 0;
      for (int i = lane; i < a.k_dim; i += 32) dot += q[i] * key[i];
      dot = warp_sum(dot);
      if (lane == 0) scores[j] = diagonal[int64_t(place) * size + j] * dot;
    }
    __syncthreads();
    if (!used) continue;
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < max_k; i += 4) {
      const float4 q4 = *reinterpret_cast<const float4*>(q + i);
      sums[0] = fmaf(state[i], q4.x, sums[0]);
      sums[1] = fmaf(state[i + 1], q4.y, sums[1]);
      sums[2] = fmaf(state[i + 2], q4.z, sums[2]);
      sums[3] = fmaf(state[i + 3], q4.w, sums[3]);
    }
    float y = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * a.tables.query[int64_t(head) * size + place];
    for (int j = 0; j <= place; ++j) y += scores[j] * v.at(j, block_begin + j)[column];
    a.y[t * a.y_token + head * a.y_head + column] = y;
  }

  __syncthreads();  // in place: everyone has read what is written now
  if (write == nullptr) return;
  if (used) write_column(write + offset + column, a.v_dim, a.k_dim, state);
  // Each place keeps the last token that stood there.
  const int last = computed + end - begin - 1;
  const auto keep = [&](const Places& from, float* to, int dim) {
    for (int64_t i = threadIdx.x; i < int64_t(size) * dim; i += block_threads) {
      const int place = int(i / dim), latest = last - ((last - place) % size + size) % size;
      float value = 0;
      if (latest >= computed) {
        value = from.fresh[(latest - computed) * from.fresh_stride + i % dim];
      } else if (read != nullptr) {
        value = from.state[i];
      }
      to[i] = value;
    }
  };
  keep(k, write + offset + matrix, a.k_dim);
  keep(v, write + offset + matrix + keys, a.v_dim);
}

std::string supports_lightning(const LightningDesc& d) {
  if (d.k_dim > largest_k) return fmt::format("keys of more than {} elements", largest_k);
  if (d.block > 0 && d.v_dim > block_threads) return fmt::format("values of more than {} elements", block_threads);
  if (d.block > 8192) return "blocks of more than 8192 positions";
  return {};
}

void run_by_tokens(const LightningArgs& a, ExecContext& context) {
  const Scan args{.q = data_of<float>(a.q),
                  .k = data_of<float>(a.k),
                  .v = data_of<float>(a.v),
                  .a = a.decay,
                  .y = data_of<float>(a.y),
                  .state = states_of(a.rows, a.state),
                  .q_token = a.q.strides[0],
                  .q_head = a.q.strides[1],
                  .k_token = a.k.strides[0],
                  .k_head = a.k.strides[1],
                  .v_token = a.v.strides[0],
                  .v_head = a.v.strides[1],
                  .y_token = a.y.strides[0],
                  .y_head = a.y.strides[1],
                  .heads = int(a.v.size(1)),
                  .key_heads = int(a.v.size(1)),
                  .k_dim = int(a.k.size(2)),
                  .v_dim = int(a.v.size(2)),
                  .most_tokens = INT_MAX};
  launch_scan<Rule::lightning>(args, a.rows.num_rows, context);
}

void run_by_blocks(const LightningArgs& a, ExecContext& context) {
  const Lightning args{.q = data_of<float>(a.q),
                       .k = data_of<float>(a.k),
                       .v = data_of<float>(a.v),
                       .tables = a.tables,
                       .y = data_of<float>(a.y),
                       .state = states_of(a.rows, a.state),
                       .computed = data_of<int32_t>(a.rows.computed),
                       .q_token = a.q.strides[0],
                       .q_head = a.q.strides[1],
                       .k_token = a.k.strides[0],
                       .k_head = a.k.strides[1],
                       .v_token = a.v.strides[0],
                       .v_head = a.v.strides[1],
                       .y_token = a.y.strides[0],
                       .y_head = a.y.strides[1],
                       .k_dim = int(a.k.size(2)),
                       .v_dim = int(a.v.size(2))};
  const dim3 grid(unsigned(a.v.size(1)), unsigned(a.rows.num_rows));
  with_k_dim(args.k_dim, [&](auto size) {
    const size_t bytes = size_t((a.tables.block + 3) / 4 * 4 + size()) * sizeof(float);
    lightning_by_blocks<size()><<<grid, block_threads, bytes, stream_of(context)>>>(args);
  });
}

void run_lightning(const LightningArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.v.size(1) * a.v.size(2) == 0) return;
  if (a.tables.block == 0) {
    run_by_tokens(a, context);
  } else {
    run_by_blocks(a, context);
  }
  check_launch("lightning_scan");
}

}  // namespace

extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta{"cuda.gated_delta_scan", Level::cuda,
                                                                        supports_delta, run_delta};
extern const Implementation<LightningDesc, LightningArgs> lightning{"cuda.lightning_scan", Level::cuda,
                                                                    supports_lightning, run_lightning};

}  // namespace medley::cuda
