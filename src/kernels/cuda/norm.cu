// layer_norm: a block a token. rms_norm: `lanes` threads (a warp for small groups, else a block) own one group of one
// token. Which of the two, and the order of additions, depend on the group's size alone.
#include "kernels/norm.h"

#include "kernels/cuda/common.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr int64_t largest_warp_group = 512;

struct Norm {
  float* x;
  const float* weight;
  const float* delta;
  const float* gate;
  void* y;
  int64_t x_stride, delta_stride, gate_stride, y_stride;
  int64_t tokens, dim, group;
  float eps, weight_offset;
  bool weight_per_group;
  NormGate gate_order;
};

__device__ float block_sum(float value) {
  __shared__ float partial[threads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < threads / 32; ++warp) sum += partial[warp];
  return sum;
}

template <int lanes, class Y>
__global__ void normalize(Norm a) {
  const int64_t item = (int64_t(blockIdx.x) * threads + threadIdx.x) / lanes;  // (token, group)
  const int64_t groups = a.dim / a.group;
  if (item >= a.tokens * groups) return;  // whole warps, or no thread at all when lanes == threads
  const int64_t t = item / groups, first = item % groups * a.group;
  float* x = a.x + t * a.x_stride + first;
  const float* gate = a.gate != nullptr ? a.gate + t * a.gate_stride + first : nullptr;
  const float* delta = a.delta != nullptr ? a.delta + t * a.delta_stride + first : nullptr;
  Y* y = static_cast<Y*>(a.y) + t * a.y_stride + first;
  const float* weight = a.weight;
  if (weight != nullptr && !a.weight_per_group) weight += first;

  float sum = 0;
  for (int64_t i = threadIdx.x % lanes; i < a.group; i += lanes) {
    float value = x[i];
    if (delta != nullptr) x[i] = value = value + delta[i];
    if (a.gate_order == NormGate::before) value *= silu(gate[i]);
    sum += value * value;
  }
  sum = lanes == 32 ? warp_sum(sum) : block_sum(sum);
  const float inverse = 1.0f / sqrtf(sum / float(a.group) + a.eps);
  for (int64_t i = threadIdx.x % lanes; i < a.group; i += lanes) {
    float value = x[i];
    if (a.gate_order == NormGate::before) value *= silu(gate[i]);
    value *= inverse;
    if (weight != nullptr) value *= weight[i] + a.weight_offset;
    if (a.gate_order == NormGate::after) value *= silu(gate[i]);
    if (a.gate_order == NormGate::after_sigmoid) value *= sigmoid(gate[i]);
    store(y + i, value);
  }
}

void run(const RmsNormArgs& a, ExecContext& context) {
  const int64_t tokens = a.x.size(0), dim = a.x.size(1);
  if (tokens * dim == 0) return;
  const bool gated = a.gate_order != NormGate::none;
  const Norm norm{.x = data_of<float>(a.x),
                  .weight = a.weight,
                  .delta = a.delta ? data_of<float>(a.delta) : nullptr,
                  .gate = gated ? data_of<float>(a.gate) : nullptr,
                  .y = a.y.data,
                  .x_stride = a.x.strides[0],
                  .delta_stride = a.delta ? a.delta.strides[0] : 0,
                  .gate_stride = gated ? a.gate.strides[0] : 0,
                  .y_stride = a.y.strides[0],
                  .tokens = tokens,
                  .dim = dim,
                  .group = a.group > 0 ? a.group : dim,
                  .eps = a.eps,
                  .weight_offset = a.weight_offset,
                  .weight_per_group = a.weight_per_group,
                  .gate_order = a.gate_order};
  const int64_t items = tokens * (dim / norm.group);
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    if (norm.group <= largest_warp_group) {
      normalize<32, Y><<<blocks_for(items, threads / 32), threads, 0, stream_of(context)>>>(norm);
    } else {
      normalize<threads, Y><<<unsigned(items), threads, 0, stream_of(context)>>>(norm);
    }
  });
  check_launch("rms_norm");
}

__device__ float all_sum(float value) {
  const float sum = block_sum(value);
  __syncthreads();  // the next sum writes where this one is read
  return sum;
}

__global__ void normalize_layer(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps,
                                int64_t dim, float* y, int64_t y_stride) {
  x += blockIdx.x * x_stride;
  y += blockIdx.x * y_stride;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < dim; i += threads) sum += x[i];
  const float mean = all_sum(sum) / float(dim);
  float squares = 0;
  for (int64_t i = threadIdx.x; i < dim; i += threads) squares += (x[i] - mean) * (x[i] - mean);
  const float inverse = 1.0f / sqrtf(all_sum(squares) / float(dim) + eps);
  for (int64_t i = threadIdx.x; i < dim; i += threads) y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
}

void run_layer_norm(const LayerNormArgs& a, ExecContext& context) {
  if (a.x.elements() == 0) return;
  normalize_layer<<<unsigned(a.x.size(0)), threads, 0, stream_of(context)>>>(
      data_of<float>(a.x), a.x.strides[0], a.weight, a.bias, a.eps, a.x.size(1), data_of<float>(a.y), a.y.strides[0]);
  check_launch("layer_norm");
}

}  // namespace

extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm{"cuda.rms_norm", Level::cuda, any, run};
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm{"cuda.layer_norm", Level::cuda, any,
                                                                     run_layer_norm};

}  // namespace medley::cuda
