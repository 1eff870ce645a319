// Matrix-valued states in token order: a thread holds one column of a head's state, k_dim elements of one v, in
// registers for the length of the chunk. Sums over k stay inside a thread, so that nothing but k_dim decides their
// order; memory is read and written once, which is what a decode step costs.
#include "kernels/linear_attention.h"

#include "kernels/cuda/state_slots.h"

namespace medley::cuda {
namespace {

constexpr int columns = 64;  // of a block: two warps
constexpr int64_t largest_k = 256;

// A column of a head's state: elements `stride` apart.
template <int max_k>
__device__ void read_column(const float* from, int64_t stride, int k_dim, bool used, float (&state)[max_k]) {
#pragma unroll
  for (int i = 0; i < max_k; ++i) state[i] = used && i < k_dim ? __ldcs(from + i * stride) : 0.0f;
}
template <int max_k>
__device__ void write_column(float* to, int64_t stride, int k_dim, const float (&state)[max_k]) {
#pragma unroll
  for (int i = 0; i < max_k; ++i)
    if (i < k_dim) __stcs(to + i * stride, state[i]);
}

// state = decay * state, returns k . state; then state += k * change, returns q . state. Four sums, so that the
// additions of one column need not wait for each other.
template <int max_k, bool per_channel>
__device__ float decay_and_dot(float (&state)[max_k], const float* decay, const float* k) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < max_k; i += 4) {
    const float4 k4 = *reinterpret_cast<const float4*>(k + i);
    const float4 d4 =
        per_channel ? *reinterpret_cast<const float4*>(decay + i) : make_float4(*decay, *decay, *decay, *decay);
    state[i] *= d4.x, state[i + 1] *= d4.y, state[i + 2] *= d4.z, state[i + 3] *= d4.w;
    sums[0] = fmaf(state[i], k4.x, sums[0]);
    sums[1] = fmaf(state[i + 1], k4.y, sums[1]);
    sums[2] = fmaf(state[i + 2], k4.z, sums[2]);
    sums[3] = fmaf(state[i + 3], k4.w, sums[3]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
template <int max_k>
__device__ float update_and_dot(float (&state)[max_k], float change, const float* k, const float* q) {
  float sums[4] = {};
#pragma unroll
  for (int i = 0; i < max_k; i += 4) {
    const float4 k4 = *reinterpret_cast<const float4*>(k + i), q4 = *reinterpret_cast<const float4*>(q + i);
    state[i] = fmaf(k4.x, change, state[i]);
    state[i + 1] = fmaf(k4.y, change, state[i + 1]);
    state[i + 2] = fmaf(k4.z, change, state[i + 2]);
    state[i + 3] = fmaf(k4.w, change, state[i + 3]);
    sums[0] = fmaf(state[i], q4.x, sums[0]);
    sums[1] = fmaf(state[i + 1], q4.y, sums[1]);
    sums[2] = fmaf(state[i + 2], q4.z, sums[2]);
    sums[3] = fmaf(state[i + 3], q4.w, sums[3]);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

struct Delta {
  const float *q, *k, *v, *dt, *beta, *a, *dt_bias;
  float* y;
  States state;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, dt_token, dt_head, beta_token, y_token, y_head;
  int heads, key_heads, k_dim, v_dim;
  float scale, l2_eps;
};

// Block (head, row, columns). The second warp prepares q, the first one k and the decays; the next token's inputs are
// loaded while this one is added.
template <int max_k, bool per_channel>
__global__ void __launch_bounds__(columns) delta(Delta a) {
  constexpr int each = max_k / 32;
  __shared__ __align__(16) float k[2][max_k], q[2][max_k], decay[2][max_k];
  const int head = blockIdx.x, row = blockIdx.y, column = blockIdx.z * columns + threadIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int key_head = head / (a.heads / a.key_heads);
  const bool used = column < a.v_dim;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int64_t offset = int64_t(head) * a.k_dim * a.v_dim + column;
  float state[max_k];
  read_column(read + offset, a.v_dim, a.k_dim, used && read != nullptr, state);

  const int begin = a.state.row_offsets[row], end = a.state.row_offsets[row + 1];
  const float rate = a.a[head];
  float vector[each], dts[each], v = 0, beta = 0;  // of the next token
  const auto load = [&](int64_t t) {
    const float* from =
        warp == 0 ? a.k + t * a.k_token + key_head * a.k_head : a.q + t * a.q_token + key_head * a.q_head;
    const float* dt = a.dt + t * a.dt_token + head * a.dt_head;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int at = lane + i * 32;
      vector[i] = at < a.k_dim ? from[at] : 0.0f;
      if (per_channel) dts[i] = warp == 0 && at < a.k_dim ? dt[at] : 0.0f;
    }
    if (!per_channel) dts[0] = dt[0];
    if (used) v = a.v[t * a.v_token + head * a.v_head + column];
    beta = a.beta[t * a.beta_token + head];
  };
  if (begin < end) load(begin);
  for (int t = begin; t < end; ++t) {
    const int buffer = (t - begin) % 2;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) squares += vector[i] * vector[i];
    const float inverse = (warp == 0 ? 1.0f : a.scale) / sqrtf(warp_sum(squares) + a.l2_eps);
    float* to = warp == 0 ? k[buffer] : q[buffer];
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int at = lane + i * 32;
      to[at] = vector[i] * inverse;
      if (per_channel && warp == 0)
        decay[buffer][at] = at < a.k_dim ? expf(rate * softplus(dts[i] + a.dt_bias[head * a.k_dim + at])) : 0.0f;
    }
    if (!per_channel && threadIdx.x == 0) decay[buffer][0] = expf(rate * softplus(dts[0] + a.dt_bias[head]));
    const float own_v = v, own_beta = sigmoid(beta);
    __syncthreads();
    if (t + 1 < end) load(t + 1);
    const float change = (own_v - decay_and_dot<max_k, per_channel>(state, decay[buffer], k[buffer])) * own_beta;
    const float y = update_and_dot(state, change, k[buffer], q[buffer]);
    if (used) a.y[t * a.y_token + head * a.y_head + column] = y;
  }
  if (used && write != nullptr) write_column(write + offset, a.v_dim, a.k_dim, state);
}

template <class F>
void with_k_dim(int64_t k_dim, F&& f) {
  if (k_dim <= 32) return f(std::integral_constant<int, 32>());
  if (k_dim <= 64) return f(std::integral_constant<int, 64>());
  if (k_dim <= 128) return f(std::integral_constant<int, 128>());
  f(std::integral_constant<int, int(largest_k)>());
}

std::string supports_delta(const GatedDeltaDesc& d) {
  if (d.k_dim > largest_k) return fmt::format("keys of more than {} elements", largest_k);
  return {};
}

void run_delta(const GatedDeltaArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.v.size(1) * a.v.size(2) == 0) return;
  const Delta args{.q = data_of<float>(a.q),
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
                   .l2_eps = a.l2_eps};
  const dim3 grid(unsigned(args.heads), unsigned(a.rows.num_rows), blocks_for(args.v_dim, columns));
  // One decay for all channels of a head that has one channel is per head and per channel alike.
  const bool per_channel = a.dt.size(2) > 1;
  with_k_dim(args.k_dim, [&](auto size) {
    if (per_channel) {
      delta<size(), true><<<grid, columns, 0, stream_of(context)>>>(args);
    } else {
      delta<size(), false><<<grid, columns, 0, stream_of(context)>>>(args);
    }
  });
  check_launch("gated_delta_scan");
}

struct Lightning {
  const float *q, *k, *v, *decay;
  LightningTables tables;
  float* y;
  States state;
  const int32_t* computed;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, y_token, y_head;
  int k_dim, v_dim;
};

// Block (head, row, columns).
template <int max_k>
__global__ void __launch_bounds__(columns) lightning_by_tokens(Lightning a) {
  constexpr int each = max_k / 32;
  __shared__ __align__(16) float k[2][max_k], q[2][max_k];
  const int head = blockIdx.x, row = blockIdx.y, column = blockIdx.z * columns + threadIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool used = column < a.v_dim;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int64_t offset = int64_t(head) * a.k_dim * a.v_dim + column;
  float state[max_k];
  read_column(read + offset, a.v_dim, a.k_dim, used && read != nullptr, state);
  const float decay = a.decay[head];
  const int begin = a.state.row_offsets[row], end = a.state.row_offsets[row + 1];
  float vector[each], v = 0;
  const auto load = [&](int64_t t) {
    const float* from = warp == 0 ? a.k + t * a.k_token + head * a.k_head : a.q + t * a.q_token + head * a.q_head;
#pragma unroll
    for (int i = 0; i < each; ++i) vector[i] = lane + i * 32 < a.k_dim ? from[lane + i * 32] : 0.0f;
    if (used) v = a.v[t * a.v_token + head * a.v_head + column];
  };
  if (begin < end) load(begin);
  for (int t = begin; t < end; ++t) {
    const int buffer = (t - begin) % 2;
    float* to = warp == 0 ? k[buffer] : q[buffer];
#pragma unroll
    for (int i = 0; i < each; ++i) to[lane + i * 32] = vector[i];
    const float own_v = v;
    __syncthreads();
    if (t + 1 < end) load(t + 1);
#pragma unroll
    for (int i = 0; i < max_k; ++i) state[i] *= decay;
    const float y = update_and_dot(state, own_v, k[buffer], q[buffer]);
    if (used) a.y[t * a.y_token + head * a.y_head + column] = y;
  }
  if (used && write != nullptr) write_column(write + offset, a.v_dim, a.k_dim, state);
}

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

void run_lightning(const LightningArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.v.size(1) * a.v.size(2) == 0) return;
  const Lightning args{.q = data_of<float>(a.q),
                       .k = data_of<float>(a.k),
                       .v = data_of<float>(a.v),
                       .decay = a.decay,
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
  const unsigned heads = unsigned(a.v.size(1)), rows = unsigned(a.rows.num_rows);
  with_k_dim(args.k_dim, [&](auto size) {
    if (a.tables.block == 0) {
      const dim3 grid(heads, rows, blocks_for(args.v_dim, columns));
      lightning_by_tokens<size()><<<grid, columns, 0, stream_of(context)>>>(args);
    } else {
      const size_t bytes = size_t((a.tables.block + 3) / 4 * 4 + size()) * sizeof(float);
      lightning_by_blocks<size()><<<dim3(heads, rows), block_threads, bytes, stream_of(context)>>>(args);
    }
  });
  check_launch("lightning_scan");
}

}  // namespace

extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta{"cuda.gated_delta_scan", Level::cuda,
                                                                        supports_delta, run_delta};
extern const Implementation<LightningDesc, LightningArgs> lightning{"cuda.lightning_scan", Level::cuda,
                                                                    supports_lightning, run_lightning};

}  // namespace medley::cuda
