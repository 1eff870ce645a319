#include "layers/kda.h"

#include <cmath>

#include "layers/mamba.h"

namespace medley {

Kda::Kda(LoadContext& context, const KdaSpec& spec, CacheLayout& cache) : spec_(spec), dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const int64_t all = spec.heads * spec.dim;
  heads_ = units_of(context.shard(), spec.heads).count;
  const Slice by_head{.dim = 0, .units = spec.heads};
  const auto part = [&](const char* name, int64_t out, int64_t in, const Slice& slice) {
    return LinearPart{at + name + ".weight", "", out, in, slice};
  };
  in_ = ColumnParallelLinear(
      context, {part("q_proj", all, spec.hidden, by_head), part("k_proj", all, spec.hidden, by_head),
                part("v_proj", all, spec.hidden, by_head), part("b_proj", spec.heads, spec.hidden, by_head)});
  low_ = Linear(context, {part("f_a_proj", spec.dim, spec.hidden, {}), part("g_a_proj", spec.dim, spec.hidden, {})});
  decay_ = ColumnParallelLinear(context, {part("f_b_proj", all, spec.dim, by_head)});
  gate_ = ColumnParallelLinear(context, {part("g_b_proj", all, spec.dim, by_head)});
  std::vector<float> conv_weight;
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    const auto weight = context.weights.take_floats(at + name, {all, 1, spec.conv_width}, by_head);
    conv_weight.insert(conv_weight.end(), weight.begin(), weight.end());
  }
  conv_weight_ = Parameter(context, conv_weight);
  a_ = Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {1, 1, spec.heads, 1},
                                                                           {.dim = 2, .units = spec.heads})));
  dt_bias_ = take_parameter(context, at + "dt_bias", {all}, by_head);
  norm_ = RmsNorm(context, at + "o_norm.weight", spec.dim, NormRule{spec.norm_eps});
  out_ = RowParallelLinear(
      context, {.weight = at + "o_proj.weight", .out = spec.hidden, .in = all, .slice = {.units = spec.heads}});

  const int64_t channels = 3 * heads_ * spec.dim;
  place_ =
      cache.add_state("delta attention", conv_state_bytes(channels, spec.conv_width) + heads_ * spec.dim * spec.dim * 4,
                      fmt::format("convolution {} x {} + recurrent {} x {} x {}, f32", spec.conv_width - 1, channels,
                                  heads_, spec.dim, spec.dim));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels, .width = spec.conv_width});
  scan_ = context.kernels.resolve(
      gated_delta_op(),
      {.heads = heads_, .key_heads = heads_, .k_dim = spec.dim, .v_dim = spec.dim, .decay_per_channel = true});
}

void Kda::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, dim = spec_.dim, inner = heads_ * dim;
  const RaggedRows rows = ragged_rows(step);

  const TensorView projected = exec.workspace.alloc(DType::f32, {tokens, in_.out()});
  in_(x, projected, exec);
  const TensorView low = exec.workspace.alloc(dtype_, {tokens, 2 * dim});
  low_(x, low, exec);
  const TensorView decay = exec.workspace.alloc(DType::f32, {tokens, inner});
  const TensorView gate = exec.workspace.alloc(DType::f32, {tokens, inner});
  decay_(low.slice(1, 0, dim), decay, exec);
  gate_(low.slice(1, dim, dim), gate, exec);

  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, 3 * inner});
  conv_({.x = projected.slice(1, 0, 3 * inner),
         .weight = conv_weight_.data(),
         .width = spec_.conv_width,
         .rows = rows,
         .state = state_slots(step, place_),
         .y = convolved},
        exec);
  const TensorView scanned = exec.workspace.alloc(DType::f32, {tokens, heads_, dim});
  scan_({.q = convolved.slice(1, 0, inner).split_last(heads_, dim),
         .k = convolved.slice(1, inner, inner).split_last(heads_, dim),
         .v = convolved.slice(1, 2 * inner, inner).split_last(heads_, dim),
         .dt = decay.split_last(heads_, dim),
         .beta = projected.slice(1, 3 * inner, heads_),
         .a = a_.data(),
         .dt_bias = dt_bias_.data(),
         .scale = float(1 / std::sqrt(double(dim))),
         .rows = rows,
         .state = state_slots(step, place_, conv_state_bytes(3 * inner, spec_.conv_width)),
         .y = scanned},
        exec);
  const TensorView normed = exec.workspace.alloc(dtype_, {tokens, inner});
  norm_.gated(scanned.reshape({tokens, inner}), gate, NormGate::after_sigmoid, normed, exec);
  out_(normed, y, exec);
}

}  // namespace medley
