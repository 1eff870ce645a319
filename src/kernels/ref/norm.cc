#include "kernels/norm.h"

#include "kernels/ref/scalar.h"

namespace medley::ref {
namespace {

template <class Y>
void normalize_row(const RmsNormArgs& a, int64_t t) {
  const int64_t dim = a.x.size(1), group = a.group > 0 ? a.group : dim;
  float* x = a.x.row<float>(t);
  const float* gate = a.gate_order != NormGate::none ? a.gate.row<float>(t) : nullptr;
  Y* y = a.y.row<Y>(t);
  if (a.delta) {
    const float* delta = a.delta.row<float>(t);
    for (int64_t i = 0; i < dim; ++i) x[i] += delta[i];
  }
  const auto input = [&](int64_t i) { return a.gate_order == NormGate::before ? x[i] * silu(gate[i]) : x[i]; };
  for (int64_t g = 0; g < dim; g += group) {
    float sums[8] = {};
    for (int64_t i = 0; i < group; ++i) {
      const float value = input(g + i);
      sums[i % 8] += value * value;
    }
    const float sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
    const float inverse = 1.0f / std::sqrt(sum / float(group) + a.eps);
    for (int64_t i = g; i < g + group; ++i) {
      float value = input(i) * inverse;
      if (a.weight != nullptr) value *= a.weight[a.weight_per_group ? i - g : i] + a.weight_offset;
      if (a.gate_order == NormGate::after) value *= silu(gate[i]);
      if (a.gate_order == NormGate::after_sigmoid) value *= sigmoid(gate[i]);
      store(y + i, value);
    }
  }
}

void run(const RmsNormArgs& a, ExecContext& context) {
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.x.size(0), [&](int64_t t, int) { normalize_row<Y>(a, t); });
  });
}

void run_layer_norm(const LayerNormArgs& a, ExecContext& context) {
  const int64_t dim = a.x.size(1);
  context.threads.parallel_for(a.x.size(0), [&](int64_t t, int) {
    const float* x = a.x.row<float>(t);
    float* y = a.y.row<float>(t);
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < dim; ++i) mean += x[i];
    mean /= float(dim);
    for (int64_t i = 0; i < dim; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(variance / float(dim) + a.eps);
    for (int64_t i = 0; i < dim; ++i) y[i] = (x[i] - mean) * inverse * a.weight[i] + a.bias[i];
  });
}

}  // namespace

extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm{"ref.rms_norm", Level::ref, any, run};
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm{"ref.layer_norm", Level::ref, any, run_layer_norm};

}  // namespace medley::ref
