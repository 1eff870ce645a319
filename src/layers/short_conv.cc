#include "layers/short_conv.h"

namespace medley {

ShortConv::ShortConv(LoadContext& context, const ShortConvSpec& spec, CacheLayout& cache)
    : width_(spec.width), channels_(units_of(context.shard(), spec.hidden).count), dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const auto third = [&](int64_t index) {
    return LinearPart{at + "in_proj.weight",
                      spec.bias ? at + "in_proj.bias" : "",
                      3 * spec.hidden,
                      spec.hidden,
                      {.dim = 0, .begin = index * spec.hidden, .count = spec.hidden, .units = spec.hidden}};
  };
  in_ = ColumnParallelLinear(context, {third(0), third(1), third(2)});
  const Slice mine{.dim = 0, .units = spec.hidden};
  conv_weight_ = take_parameter(context, at + "conv.weight", {spec.hidden, 1, width_}, mine);
  if (spec.bias) conv_bias_ = take_parameter(context, at + "conv.bias", {spec.hidden}, mine);
  out_ = RowParallelLinear(context, {.weight = at + "out_proj.weight",
                                     .bias = spec.bias ? at + "out_proj.bias" : "",
                                     .out = spec.hidden,
                                     .in = spec.hidden,
                                     .slice = {.units = spec.hidden}});
  place_ = cache.add_state("short convolution", conv_state_bytes(channels_, width_),
                           fmt::format("convolution {} x {}, f32", width_ - 1, channels_));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels_, .width = width_});
  f32_gate_ = context.kernels.resolve(gate_op(), {.act = Gate::identity, .y = DType::f32});
  gate_ = context.kernels.resolve(gate_op(), {.act = Gate::identity, .y = dtype_});
}

void ShortConv::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens;
  const TensorView bcx = exec.workspace.alloc(DType::f32, {tokens, 3 * channels_});
  in_(x, bcx, exec);
  const TensorView input = bcx.slice(1, 2 * channels_, channels_);
  f32_gate_({.x = input, .gate = bcx.slice(1, 0, channels_), .y = input}, exec);
  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, channels_});
  conv_({.x = input,
         .weight = conv_weight_.data(),
         .bias = conv_bias_.data(),
         .width = width_,
         .silu = false,
         .rows = ragged_rows(step),
         .state = state_slots(step, place_),
         .y = convolved},
        exec);
  const TensorView gated = exec.workspace.alloc(dtype_, {tokens, channels_});
  gate_({.x = convolved, .gate = bcx.slice(1, channels_, channels_), .y = gated}, exec);
  out_(gated, y, exec);
}

}  // namespace medley
