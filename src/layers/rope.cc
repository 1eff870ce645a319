#include "layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace medley {
namespace {

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between interpolated.
float llama3_frequency(const RopeSpec& spec, float frequency) {
  const float old_context = float(spec.original_max_positions);
  const float low = float(spec.low_freq_factor), high = float(spec.high_freq_factor), factor = float(spec.factor);
  const float wavelength = float(2 * std::numbers::pi) / frequency;
  if (wavelength < old_context / high) return frequency;
  if (wavelength > old_context / low) return frequency / factor;
  const float smooth = (old_context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// YaRN (Peng et al. 2023): dimensions that turn more than beta_fast times over the original context are kept, those
// that turn less than beta_slow times are interpolated, a linear ramp joins them.
std::vector<float> yarn_frequencies(const RopeSpec& spec) {
  const double dim = double(spec.dim);
  const auto dimension_of = [&](double rotations) {
    return dim * std::log(spec.original_max_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(spec.theta));
  };
  double low = dimension_of(spec.beta_fast), high = dimension_of(spec.beta_slow);
  if (spec.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < spec.dim / 2; ++i) {
    const float turn = std::pow(float(spec.theta), float(2 * i) / float(spec.dim));
    const float ramp = std::clamp((float(i) - float(low)) / float(high - low), 0.0f, 1.0f);
    const float keep = 1 - ramp;
    frequencies.push_back(1.0f / (float(spec.factor) * turn) * (1 - keep) + 1.0f / turn * keep);
  }
  return frequencies;
}

}  // namespace

std::vector<float> inverse_frequencies(const RopeSpec& spec) {
  if (spec.scaling == RopeScaling::yarn) return yarn_frequencies(spec);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < spec.dim / 2; ++i) {
    const float frequency = 1.0f / std::pow(float(spec.theta), float(2 * i) / float(spec.dim));
    switch (spec.scaling) {
      case RopeScaling::linear: frequencies.push_back(frequency / float(spec.factor)); break;
      case RopeScaling::llama3: frequencies.push_back(llama3_frequency(spec, frequency)); break;
      default: frequencies.push_back(frequency);
    }
  }
  return frequencies;
}

Rope::Rope(LoadContext& context, const RopeSpec& spec)
    : inv_freq_(context, inverse_frequencies(spec)),
      attention_factor_(float(spec.attention_factor)),
      interleaved_(spec.interleaved) {
  angles_ = context.kernels.resolve(rope_angles_op(), {.half = spec.dim / 2});
  rotate_ = context.kernels.resolve(rope_op(), {.half = spec.dim / 2, .interleaved = spec.interleaved});
}

TensorView Rope::table(const Step& step, ExecContext& exec) const {
  const TensorView table = exec.workspace.alloc(DType::f32, {step.num_tokens, inv_freq_.size() * 2});
  angles_({.positions = step.positions, .inv_freq = inv_freq_.data(), .factor = attention_factor_, .table = table},
          exec);
  return table;
}

void Rope::operator()(const TensorView& x, const TensorView& table, ExecContext& exec) const {
  rotate_({.x = x, .table = table, .interleaved = interleaved_}, exec);
}

}  // namespace medley
