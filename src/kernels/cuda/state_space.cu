// The recurrences in token order, with a row's state in registers for the length of its chunk: memory is read and
// written once, which is what a decode step costs. Mamba2's rows of many new tokens are ssd_chunks.cu's business.
#include "kernels/state_space.h"

#include <climits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ssd_chunks.h"
#include "kernels/cuda/state_slots.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr unsigned all = 0xffffffffu;

struct Conv {
  const float *x, *weight, *bias;
  float* y;
  States state;
  int64_t x_stride, y_stride, channels, num_rows;
  int width;
  bool silu;
};

// Rows with few tokens: a thread goes through those of a channel, the last inputs in registers.
constexpr int64_t few_tokens = 8;
template <int width>
__global__ void convolve_rows(Conv a) {
  let_next_start();
  const int row = blockIdx.x;
  const int64_t c = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (c >= a.channels) return wait_for_previous();
  float weight[width], input[width];
#pragma unroll
  for (int j = 0; j < width; ++j) weight[j] = a.weight[c * width + j];
  const float bias = a.bias != nullptr ? a.bias[c] : 0.0f;
  const float* tail = a.state.at(a.state.read[row]);
  float* to = a.state.at(a.state.write[row]);
  wait_for_previous();
#pragma unroll
  for (int j = 1; j < width; ++j) input[j] = tail != nullptr ? tail[(j - 1) * a.channels + c] : 0.0f;
  const int end = a.state.row_offsets[row + 1];
  for (int64_t token = a.state.row_offsets[row]; token < end; ++token) {
#pragma unroll
    for (int j = 1; j < width; ++j) input[j - 1] = input[j];
    input[width - 1] = a.x[token * a.x_stride + c];
    float sum = bias;
#pragma unroll
    for (int j = 0; j < width; ++j) sum += weight[j] * input[j];
    a.y[token * a.y_stride + c] = a.silu ? silu(sum) : sum;
  }
  if (to == nullptr) return;
#pragma unroll
  for (int j = 1; j < width; ++j) to[(j - 1) * a.channels + c] = input[j];
}

// Outputs of one token; a second launch moves the tails, after every output has read the old ones.
__global__ void convolve(Conv a) {
  follow_previous();
  const int token = blockIdx.x;
  const int64_t c = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (c >= a.channels || token >= a.state.row_offsets[a.num_rows]) return;
  const int row = row_of(a.state.row_offsets, int(a.num_rows), token);
  const int first = a.state.row_offsets[row];
  const float* tail = a.state.at(a.state.read[row]);
  float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
  for (int j = 0; j < a.width; ++j) {
    const int from = token - (a.width - 1) + j;  // of the step's tokens; before `first`: in the tail
    float input = 0;
    if (from >= first) {
      input = a.x[from * a.x_stride + c];
    } else if (tail != nullptr) {
      input = tail[(from - first + a.width - 1) * a.channels + c];
    }
    sum += a.weight[c * a.width + j] * input;
  }
  a.y[token * a.y_stride + c] = a.silu ? silu(sum) : sum;
}

__global__ void move_tails(Conv a) {
  follow_previous();
  const int row = blockIdx.x;
  const int64_t c = int64_t(blockIdx.y) * threads + threadIdx.x;
  float* to = a.state.at(a.state.write[row]);
  if (c >= a.channels || to == nullptr) return;
  const float* tail = a.state.at(a.state.read[row]);
  const int first = a.state.row_offsets[row], count = a.state.row_offsets[row + 1] - first;
  // In place is safe: entry j comes from entry j + count, which is not written before it is read.
  for (int j = 0; j < a.width - 1; ++j) {
    const int from = count + j - (a.width - 1);
    float input = 0;
    if (from >= 0) {
      input = a.x[(first + from) * a.x_stride + c];
    } else if (tail != nullptr) {
      input = tail[(count + j) * a.channels + c];
    }
    to[j * a.channels + c] = input;
  }
}

void run_conv(const CausalConvArgs& a, ExecContext& context) {
  const int64_t channels = a.x.size(1);
  if (channels == 0 || a.rows.num_rows == 0) return;
  const Conv args{.x = data_of<float>(a.x),
                  .weight = a.weight,
                  .bias = a.bias,
                  .y = data_of<float>(a.y),
                  .state = states_of(a.rows, a.state),
                  .x_stride = a.x.strides[0],
                  .y_stride = a.y.strides[0],
                  .channels = channels,
                  .num_rows = a.rows.num_rows,
                  .width = int(a.width),
                  .silu = a.silu};
  // The same sums in the same order whichever it is.
  const unsigned parts = blocks_for(channels, threads);
  const Grid rows{dim3(unsigned(a.rows.num_rows), parts), threads};
  if (a.rows.max_new_tokens <= few_tokens) {
    if (a.width == 4) return launch_kernel("causal_conv1d", convolve_rows<4>, rows, context, args);
    if (a.width == 3) return launch_kernel("causal_conv1d", convolve_rows<3>, rows, context, args);
    if (a.width == 2) return launch_kernel("causal_conv1d", convolve_rows<2>, rows, context, args);
  }
  if (a.rows.num_tokens > 0)
    launch_kernel("causal_conv1d", convolve, {dim3(unsigned(a.rows.num_tokens), parts), threads}, context, args);
  launch_kernel("causal_conv1d", move_tails, rows, context, args);
}

struct Selective {
  const float *x, *dt, *b, *c, *z, *a, *d, *dt_bias;
  void* y;
  States state;
  int64_t x_stride, dt_stride, b_stride, c_stride, z_stride, y_stride;
  int64_t channels;
  int states;
};

// One thread a channel, its states in registers: max_states of them, the used ones first.
template <int max_states, class Y>
__global__ void __launch_bounds__(128) selective(Selective a) {
  follow_previous();
  const int row = blockIdx.x;
  const int64_t channel = int64_t(blockIdx.y) * 128 + threadIdx.x;
  if (channel >= a.channels) return;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  float state[max_states], decay[max_states];
#pragma unroll
  for (int n = 0; n < max_states; ++n) {
    const bool used = n < a.states;
    state[n] = used && read != nullptr ? read[channel * a.states + n] : 0.0f;
    decay[n] = used ? a.a[channel * a.states + n] : 0.0f;
  }
  const float bias = a.dt_bias != nullptr ? a.dt_bias[channel] : 0.0f, skip = a.d[channel];
  const int end = a.state.row_offsets[row + 1];
  for (int64_t t = a.state.row_offsets[row]; t < end; ++t) {
    const float x = a.x[t * a.x_stride + channel];
    const float dt = softplus(a.dt[t * a.dt_stride + channel] + bias);
    const float* b = a.b + t * a.b_stride;
    const float* c = a.c + t * a.c_stride;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < max_states; ++n) {
      if (n >= a.states) break;
      state[n] = expf(dt * decay[n]) * state[n] + dt * b[n] * x;
      sum += state[n] * c[n];
    }
    float y = sum + skip * x;
    if (a.z != nullptr) y *= silu(a.z[t * a.z_stride + channel]);
    store(static_cast<Y*>(a.y) + t * a.y_stride + channel, y);
  }
  if (write == nullptr) return;
#pragma unroll
  for (int n = 0; n < max_states; ++n)
    if (n < a.states) write[channel * a.states + n] = state[n];
}

constexpr int64_t largest_selective = 64;

std::string supports_selective(const SelectiveScanDesc& d) {
  if (d.states > largest_selective) return fmt::format("more than {} states a channel", largest_selective);
  return {};
}

void run_selective(const SelectiveScanArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.x.size(1) == 0) return;
  const Selective args{.x = data_of<float>(a.x),
                       .dt = data_of<float>(a.dt),
                       .b = data_of<float>(a.b),
                       .c = data_of<float>(a.c),
                       .z = a.z ? data_of<float>(a.z) : nullptr,
                       .a = a.a,
                       .d = a.d,
                       .dt_bias = a.dt_bias,
                       .y = a.y.data,
                       .state = states_of(a.rows, a.state),
                       .x_stride = a.x.strides[0],
                       .dt_stride = a.dt.strides[0],
                       .b_stride = a.b.strides[0],
                       .c_stride = a.c.strides[0],
                       .z_stride = a.z ? a.z.strides[0] : 0,
                       .y_stride = a.y.strides[0],
                       .channels = a.x.size(1),
                       .states = int(a.b.size(1))};
  const dim3 grid(unsigned(a.rows.num_rows), blocks_for(args.channels, 128));
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    if (args.states <= 16) {
      launch_kernel("selective_scan", selective<16, Y>, {grid, 128}, context, args);
    } else {
      launch_kernel("selective_scan", selective<largest_selective, Y>, {grid, 128}, context, args);
    }
  });
}

struct Ssd {
  const float *x, *dt, *b, *c, *a, *d, *dt_bias;
  float* y;
  States state;
  int64_t x_token, x_head, dt_token, b_token, b_group, c_token, c_group, y_token, y_head;
  int heads, head_dim, states, groups;
  float dt_min, dt_max;
  int most_tokens;  // rows with more go by chunks
};

constexpr int ssd_rows = 8;  // of the head, per warp: 8 rows x `wide` states in registers

// Sums each of eight values over the warp and leaves sum r in the lanes whose lane % 8 is r: 4 + 2 + 1 exchanges that
// halve the values held, then two that halve the lanes; eight separate sums would take forty.
__device__ float sum_eight(float (&v)[ssd_rows], int lane) {
#pragma unroll
  for (int half = 4, bit = 4; half >= 1; half /= 2, bit /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const bool upper = lane & bit;
      const float give = upper ? v[i] : v[i + half];
      const float keep = upper ? v[i + half] : v[i];
      v[i] = keep + __shfl_xor_sync(all, give, bit);
    }
  }
  float sum = v[0];
  sum += __shfl_xor_sync(all, sum, 8);
  return sum + __shfl_xor_sync(all, sum, 16);
}

// A block's part of the states, on its way while the kernel before ends.
__device__ void prefetch_states(const Ssd& a) {
  constexpr int most = threads / 32 * ssd_rows;
  const int first = blockIdx.z * most, rows = min(most, a.head_dim - first);
  const float* read = a.state.at(a.state.read[blockIdx.y]);
  if (read != nullptr)
    prefetch_to_l2(read + (int64_t(blockIdx.x) * a.head_dim + first) * a.states, unsigned(rows * a.states * 4));
}

// Warp: ssd_rows rows of one head of one row of the batch; lane: `wide` neighbouring states of each.
template <int wide, bool vectors>
__global__ void __launch_bounds__(threads) ssd(Ssd a) {
  let_next_start();
  if (vectors && threadIdx.x == 0) prefetch_states(a);
  wait_for_previous();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = blockIdx.y, head = blockIdx.x;
  if (a.state.row_offsets[row + 1] - a.state.row_offsets[row] > a.most_tokens) return;
  const int first_row = (blockIdx.z * (threads / 32) + warp) * ssd_rows;
  if (first_row >= a.head_dim) return;
  const int rows = min(ssd_rows, a.head_dim - first_row);
  const int group = head / (a.heads / a.groups), first_state = lane * wide;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  const int64_t offset = (int64_t(head) * a.head_dim + first_row) * a.states + first_state;

  float state[ssd_rows][wide];
#pragma unroll
  for (int r = 0; r < ssd_rows; ++r) {
    const bool used = read != nullptr && r < rows;
    if constexpr (vectors) {
#pragma unroll
      for (int n = 0; n < wide; n += 4) {
        const float4 four =
            used ? __ldcs(reinterpret_cast<const float4*>(read + offset + r * a.states + n)) : make_float4(0, 0, 0, 0);
        state[r][n] = four.x, state[r][n + 1] = four.y, state[r][n + 2] = four.z, state[r][n + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int n = 0; n < wide; ++n)
        state[r][n] = used && first_state + n < a.states ? read[offset + r * a.states + n] : 0.0f;
    }
  }

  const float bias = a.dt_bias != nullptr ? a.dt_bias[head] : 0.0f, rate = a.a[head], skip = a.d[head];
  const int end = a.state.row_offsets[row + 1];
  for (int64_t t = a.state.row_offsets[row]; t < end; ++t) {
    const float dt = fminf(fmaxf(softplus(a.dt[t * a.dt_token + head] + bias), a.dt_min), a.dt_max);
    const float decay = expf(dt * rate);
    const float* b_at = a.b + t * a.b_token + group * a.b_group + first_state;
    const float* c_at = a.c + t * a.c_token + group * a.c_group + first_state;
    const float* x_at = a.x + t * a.x_token + head * a.x_head + first_row;
    float b[wide], c[wide], sums[ssd_rows];
#pragma unroll
    for (int n = 0; n < wide; ++n) {
      const bool used = vectors || first_state + n < a.states;
      b[n] = used ? b_at[n] : 0.0f;
      c[n] = used ? c_at[n] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < ssd_rows; ++r) {
      const float input = r < rows ? dt * x_at[r] : 0.0f;
      sums[r] = 0;
#pragma unroll
      for (int n = 0; n < wide; ++n) {
        state[r][n] = fmaf(decay, state[r][n], input * b[n]);
        sums[r] = fmaf(state[r][n], c[n], sums[r]);
      }
    }
    const float sum = sum_eight(sums, lane);
    // Lane l holds row (l & 4 ? 4 : 0) + (l & 2 ? 2 : 0) + (l & 1), which is l % 8.
    if (lane < rows) a.y[t * a.y_token + head * a.y_head + first_row + lane] = sum + skip * x_at[lane];
  }
  if (write == nullptr) return;
#pragma unroll
  for (int r = 0; r < ssd_rows; ++r) {
    if (r >= rows) break;
    if constexpr (vectors) {
#pragma unroll
      for (int n = 0; n < wide; n += 4)
        __stcs(reinterpret_cast<float4*>(write + offset + r * a.states + n),
               make_float4(state[r][n], state[r][n + 1], state[r][n + 2], state[r][n + 3]));
    } else {
#pragma unroll
      for (int n = 0; n < wide; ++n)
        if (first_state + n < a.states) write[offset + r * a.states + n] = state[r][n];
    }
  }
}

constexpr int64_t largest_ssd = 256;

std::string supports_ssd(const SsdScanDesc& d) {
  if (d.states > largest_ssd) return fmt::format("more than {} states", largest_ssd);
  return {};
}

void run_ssd(const SsdScanArgs& a, ExecContext& context) {
  if (a.rows.num_rows == 0 || a.x.size(1) * a.x.size(2) == 0) return;
  const bool chunks = ssd_takes_chunks(a);
  if (chunks && a.rows.max_new_tokens >= ssd_chunked_from) {
    ssd_by_chunks(a, context);
    if (a.rows.num_rows == 1) return;
  }
  const Ssd args{.x = data_of<float>(a.x),
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
                 .head_dim = int(a.x.size(2)),
                 .states = int(a.b.size(2)),
                 .groups = int(a.b.size(1)),
                 .dt_min = a.dt_min,
                 .dt_max = a.dt_max,
                 .most_tokens = chunks ? ssd_chunked_from - 1 : INT_MAX};
  const int states = args.states;
  const bool aligned = (reinterpret_cast<uintptr_t>(a.state.base) + uintptr_t(a.state.offset_bytes)) % 16 == 0;
  const dim3 grid(unsigned(args.heads), unsigned(a.rows.num_rows), blocks_for(args.head_dim, threads / 32 * ssd_rows));
  // The same arithmetic with and without vector loads: alignment cannot change a result.
  if (states == 128 && aligned) {
    launch_kernel("ssd_scan", ssd<4, true>, {grid, threads}, context, args);
  } else if (states == 256 && aligned) {
    launch_kernel("ssd_scan", ssd<8, true>, {grid, threads}, context, args);
  } else if (states <= 32) {
    launch_kernel("ssd_scan", ssd<1, false>, {grid, threads}, context, args);
  } else if (states <= 64) {
    launch_kernel("ssd_scan", ssd<2, false>, {grid, threads}, context, args);
  } else if (states <= 128) {
    launch_kernel("ssd_scan", ssd<4, false>, {grid, threads}, context, args);
  } else {
    launch_kernel("ssd_scan", ssd<8, false>, {grid, threads}, context, args);
  }
}

}  // namespace

extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv{"cuda.causal_conv1d", Level::cuda, any,
                                                                        run_conv};
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan{"cuda.selective_scan", Level::cuda,
                                                                                 supports_selective, run_selective};
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan{"cuda.ssd_scan", Level::cuda, supports_ssd, run_ssd};

}  // namespace medley::cuda
