// layer_norm: a block a token. rms_norm: `lanes` threads (a warp for small groups, else a block) own one group of one
// token. How many, and the order of additions, depend on the group's size alone.
#include "kernels/norm.h"

#include "kernels/cuda/launch.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr int64_t largest_group = 16384;

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

template <int block>
__device__ float block_sum(float value) {
  __shared__ float partial[block / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(threadIdx.x % 32 < block / 32 ? partial[threadIdx.x % 32] : 0.0f);
}

// `lanes` threads own a group, `held` of its elements each at most in registers: one trip through memory, its loads
// under way together. (With the elements read twice in a loop, a row of 5,120 took 19 us.)
template <int lanes, int held, class Y>
__global__ void __launch_bounds__(lanes == 32 ? threads : lanes) normalize(Norm a) {
  let_next_start();
  constexpr int per_block = lanes == 32 ? threads / 32 : 1;
  const int64_t item = int64_t(blockIdx.x) * per_block + threadIdx.x / lanes;  // (token, group)
  const int64_t groups = a.dim / a.group;
  if (item >= a.tokens * groups) return wait_for_previous();  // whole warps
  const int64_t t = item / groups, first = item % groups * a.group;
  float* x = a.x + t * a.x_stride + first;
  const float* gate = a.gate != nullptr ? a.gate + t * a.gate_stride + first : nullptr;
  const float* delta = a.delta != nullptr ? a.delta + t * a.delta_stride + first : nullptr;
  Y* y = static_cast<Y*>(a.y) + t * a.y_stride + first;
  const float* weight = a.weight;
  if (weight != nullptr && !a.weight_per_group) weight += first;
  const int lane = threadIdx.x % lanes, group = int(a.group);

  float value[held], scale[held], gates[held];
#pragma unroll
  for (int j = 0; j < held; ++j) {
    const int i = lane + j * lanes;
    scale[j] = weight != nullptr && i < group ? weight[i] + a.weight_offset : 1.0f;
  }
  wait_for_previous();
#pragma unroll
  for (int j = 0; j < held; ++j) {
    const int i = lane + j * lanes;
    const bool there = i < group;
    value[j] = there ? x[i] : 0.0f;
    if (delta != nullptr && there) value[j] += delta[i];
    gates[j] = gate != nullptr && there ? gate[i] : 0.0f;
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < held; ++j) {
    const int i = lane + j * lanes;
    if (delta != nullptr && i < group) x[i] = value[j];
    if (a.gate_order == NormGate::before) value[j] *= silu(gates[j]);
    sum += value[j] * value[j];
  }
  sum = lanes == 32 ? warp_sum(sum) : block_sum<lanes>(sum);
  const float inverse = 1.0f / sqrtf(sum / float(a.group) + a.eps);
#pragma unroll
  for (int j = 0; j < held; ++j) {
    const int i = lane + j * lanes;
    float normed = value[j] * inverse * scale[j];
    if (a.gate_order == NormGate::after) normed *= silu(gates[j]);
    if (a.gate_order == NormGate::after_sigmoid) normed *= sigmoid(gates[j]);
    if (i < group) store(y + i, normed);
  }
}

template <int lanes, int held>
void launch(const RmsNormArgs& a, const Norm& norm, ExecContext& context) {
  const int64_t items = norm.tokens * (norm.dim / norm.group);
  constexpr int block = lanes == 32 ? threads : lanes;
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    launch_kernel("rms_norm", normalize<lanes, held, Y>, {blocks_for(items, block / lanes), block}, context, norm);
  });
}

std::string supports_norm(const RmsNormDesc& d) {
  if (d.dim > largest_group) return fmt::format("rows of more than {} elements", largest_group);
  return {};
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
  if (norm.group <= 128) {
    launch<32, 4>(a, norm, context);
  } else if (norm.group <= 512) {
    launch<128, 4>(a, norm, context);
  } else if (norm.group <= 2048) {
    launch<512, 4>(a, norm, context);
  } else if (norm.group <= 4096) {
    launch<1024, 4>(a, norm, context);
  } else if (norm.group <= 6144) {
    launch<1024, 6>(a, norm, context);
  } else if (norm.group <= 8192) {
    launch<1024, 8>(a, norm, context);
  } else {
    launch<1024, 16>(a, norm, context);
  }
}

__device__ float all_sum(float value) {
  const float sum = block_sum<threads>(value);
  __syncthreads();  // the next sum writes where this one is read
  return sum;
}

__global__ void normalize_layer(const float* x, int64_t x_stride, const float* weight, const float* bias, float eps,
                                int64_t dim, float* y, int64_t y_stride) {
  follow_previous();
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
  launch_kernel("layer_norm", normalize_layer, {unsigned(a.x.size(0)), threads}, context, data_of<float>(a.x),
                a.x.strides[0], a.weight, a.bias, a.eps, a.x.size(1), data_of<float>(a.y), a.y.strides[0]);
}

}  // namespace

extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm{"cuda.rms_norm", Level::cuda, supports_norm, run};
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm{"cuda.layer_norm", Level::cuda, any,
                                                                     run_layer_norm};

}  // namespace medley::cuda
