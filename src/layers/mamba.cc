#include "layers/mamba.h"

#include <cmath>

namespace medley {

std::vector<float> negative_exponential(std::vector<float> a_log) {
  for (float& value : a_log) value = -std::exp(value);
  return a_log;
}

Mamba::Mamba(LoadContext& context, const MambaSpec& spec, CacheLayout& cache) : spec_(spec), dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const int64_t all = spec.channels, states = spec.states;
  channels_ = units_of(context.shard(), all).count;
  const Slice mine{.dim = 0, .units = all};
  const auto half = [&](int64_t begin) {
    return LinearPart{at + "in_proj.weight",
                      spec.proj_bias ? at + "in_proj.bias" : "",
                      2 * all,
                      spec.hidden,
                      {.dim = 0, .begin = begin, .count = all, .units = all}};
  };
  in_ = ColumnParallelLinear(context, {half(0), half(all)});
  conv_weight_ = take_parameter(context, at + "conv1d.weight", {all, 1, spec.conv_width}, mine);
  if (spec.conv_bias) conv_bias_ = take_parameter(context, at + "conv1d.bias", {all}, mine);
  x_proj_ = RowParallelLinear(
      context, {.weight = at + "x_proj.weight", .out = spec.dt_rank + 2 * states, .in = all, .slice = {.units = all}});
  if (spec.parameter_norms) {
    const auto norm = [&](const char* name, int64_t dim) {
      return RmsNorm(context, spec.parameter_norm_weights ? at + name : "", dim, NormRule{*spec.parameter_norms});
    };
    dt_norm_ = norm("dt_layernorm.weight", spec.dt_rank);
    b_norm_ = norm("b_layernorm.weight", states);
    c_norm_ = norm("c_layernorm.weight", states);
  }
  dt_proj_ = ColumnParallelLinear(context, {{at + "dt_proj.weight", "", all, spec.dt_rank, mine}});
  dt_bias_ = take_parameter(context, at + "dt_proj.bias", {all}, mine);
  a_ = Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {all, states}, mine)));
  d_ = take_parameter(context, at + "D", {all}, mine);
  out_ = RowParallelLinear(context, {.weight = at + "out_proj.weight",
                                     .bias = spec.proj_bias ? at + "out_proj.bias" : "",
                                     .out = spec.hidden,
                                     .in = all,
                                     .slice = {.units = all}});

  place_ = cache.add_state(
      "mamba", conv_state_bytes(channels_, spec.conv_width) + channels_ * states * 4,
      fmt::format("convolution {} x {} + recurrent {} x {}, f32", spec.conv_width - 1, channels_, channels_, states));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels_, .width = spec.conv_width});
  scan_ = context.kernels.resolve(selective_scan_op(), {.channels = channels_, .states = states, .y = dtype_});
  to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
}

TensorView Mamba::as_input(const TensorView& x, ExecContext& exec) const {
  if (dtype_ == DType::f32) return x;
  const TensorView y = exec.workspace.alloc(dtype_, {x.size(0), x.size(1)});
  to_dtype_({.x = x, .y = y}, exec);
  return y;
}

void Mamba::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, states = spec_.states, dt_rank = spec_.dt_rank;
  const RaggedRows rows = ragged_rows(step);

  const TensorView xz = exec.workspace.alloc(DType::f32, {tokens, 2 * channels_});
  in_(x, xz, exec);
  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, channels_});
  conv_({.x = xz.slice(1, 0, channels_),
         .weight = conv_weight_.data(),
         .bias = conv_bias_.data(),
         .width = spec_.conv_width,
         .rows = rows,
         .state = state_slots(step, place_),
         .y = convolved},
        exec);

  const TensorView parameters = exec.workspace.alloc(DType::f32, {tokens, dt_rank + 2 * states});
  x_proj_(as_input(convolved, exec), parameters, exec);
  const TensorView dt_low = parameters.slice(1, 0, dt_rank);
  const TensorView b = parameters.slice(1, dt_rank, states), c = parameters.slice(1, dt_rank + states, states);
  if (dt_norm_) {
    (*dt_norm_)(dt_low, dt_low, exec);
    (*b_norm_)(b, b, exec);
    (*c_norm_)(c, c, exec);
  }
  const TensorView dt = exec.workspace.alloc(DType::f32, {tokens, channels_});
  dt_proj_(as_input(dt_low, exec), dt, exec);

  const TensorView scanned = exec.workspace.alloc(dtype_, {tokens, channels_});
  scan_({.x = convolved,
         .dt = dt,
         .b = b,
         .c = c,
         .z = xz.slice(1, channels_, channels_),
         .a = a_.data(),
         .d = d_.data(),
         .dt_bias = dt_bias_.data(),
         .rows = rows,
         .state = state_slots(step, place_, conv_state_bytes(channels_, spec_.conv_width)),
         .y = scanned},
        exec);
  out_(scanned, y, exec);
}

}  // namespace medley
