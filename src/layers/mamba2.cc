#include "layers/mamba2.h"

#include "layers/mamba.h"

namespace medley {

Mamba2::Mamba2(LoadContext& context, const Mamba2Spec& spec, CacheLayout& cache)
    : spec_(spec), dtype_(context.dtype), reproducible_(context.reproducible) {
  const std::string& at = spec.prefix;
  const HeadRange mine = heads_of(context.shard(), spec.heads, spec.groups, at + "mixer");
  heads_ = mine.heads.count;
  groups_ = mine.groups.count;
  const int64_t inner = spec.heads * spec.head_dim, bc = spec.groups * spec.states;
  const int64_t rows = 2 * inner + 2 * bc + spec.heads;
  // The rank's part of a run of rows that starts at `begin` and has `width` rows a head or group.
  const auto section = [](int64_t begin, UnitRange range, int64_t width) {
    return Slice{.dim = 0, .begin = begin + range.begin * width, .count = range.count * width};
  };
  const auto part = [&](const Slice& slice, float scale) {
    return LinearPart{
        at + "in_proj.weight", spec.proj_bias ? at + "in_proj.bias" : "", rows, spec.hidden, slice, scale};
  };
  const Mamba2Multipliers& by = spec.multipliers;
  in_ = ColumnParallelLinear(context, {part(section(0, mine.heads, spec.head_dim), by.z),
                                       part(section(inner, mine.heads, spec.head_dim), by.x),
                                       part(section(2 * inner, mine.groups, spec.states), by.b),
                                       part(section(2 * inner + bc, mine.groups, spec.states), by.c),
                                       part(section(2 * inner + 2 * bc, mine.heads, 1), by.dt)});
  std::vector<float> conv_weight, conv_bias;
  for (const Slice& slice : {section(0, mine.heads, spec.head_dim), section(inner, mine.groups, spec.states),
                             section(inner + bc, mine.groups, spec.states)}) {
    const auto weight = context.weights.take_floats(at + "conv1d.weight", {inner + 2 * bc, 1, spec.conv_width}, slice);
    conv_weight.insert(conv_weight.end(), weight.begin(), weight.end());
    if (!spec.conv_bias) continue;
    const auto bias = context.weights.take_floats(at + "conv1d.bias", {inner + 2 * bc}, slice);
    conv_bias.insert(conv_bias.end(), bias.begin(), bias.end());
  }
  conv_weight_ = Parameter(context, conv_weight);
  conv_bias_ = Parameter(context, conv_bias);
  const Slice by_head = section(0, mine.heads, 1), channels_by_head = section(0, mine.heads, spec.head_dim);
  dt_bias_ = take_parameter(context, at + "dt_bias", {spec.heads}, by_head);
  a_ = Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {spec.heads}, by_head)));
  d_ = take_parameter(context, at + "D", {spec.heads}, by_head);
  if (spec.norm != Mamba2Norm::none) {
    const NormRule rule{.eps = spec.norm_eps, .group = spec.norm_by_group ? inner / spec.groups : 0};
    norm_ = RmsNorm(context, at + "norm.weight", inner, rule, channels_by_head);
  }
  out_ = RowParallelLinear(context, {.weight = at + "out_proj.weight",
                                     .bias = spec.out_bias ? at + "out_proj.bias" : "",
                                     .out = spec.hidden,
                                     .in = inner,
                                     .slice = channels_by_head,
                                     .scale = by.out});

  const int64_t channels = heads_ * spec.head_dim + 2 * groups_ * spec.states;
  place_ =
      cache.add_state("mamba2", conv_state_bytes(channels, spec.conv_width) + heads_ * spec.head_dim * spec.states * 4,
                      fmt::format("convolution {} x {} + recurrent {} x {} x {}, f32", spec.conv_width - 1, channels,
                                  heads_, spec.head_dim, spec.states));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels, .width = spec.conv_width});
  scan_ = context.kernels.resolve(
      ssd_scan_op(), {.heads = heads_, .head_dim = spec.head_dim, .states = spec.states, .groups = groups_});
  if (spec.norm == Mamba2Norm::none) gate_ = context.kernels.resolve(gate_op(), {.act = Gate::silu, .y = dtype_});
}

void Mamba2::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, inner = heads_ * spec_.head_dim, bc = groups_ * spec_.states;
  const RaggedRows rows = ragged_rows(step);

  const TensorView projected = exec.workspace.alloc(DType::f32, {tokens, in_.out()});
  in_(x, projected, exec);
  const TensorView gate = projected.slice(1, 0, inner);
  const TensorView dt = projected.slice(1, 2 * inner + 2 * bc, heads_);
  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, inner + 2 * bc});
  conv_({.x = projected.slice(1, inner, inner + 2 * bc),
         .weight = conv_weight_.data(),
         .bias = conv_bias_.data(),
         .width = spec_.conv_width,
         .rows = rows,
         .state = state_slots(step, place_),
         .y = convolved},
        exec);

  const TensorView scanned = exec.workspace.alloc(DType::f32, {tokens, heads_, spec_.head_dim});
  scan_({.x = convolved.slice(1, 0, inner).split_last(heads_, spec_.head_dim),
         .dt = dt,
         .b = convolved.slice(1, inner, bc).split_last(groups_, spec_.states),
         .c = convolved.slice(1, inner + bc, bc).split_last(groups_, spec_.states),
         .a = a_.data(),
         .d = d_.data(),
         .dt_bias = dt_bias_.data(),
         .dt_min = spec_.dt_min,
         .dt_max = spec_.dt_max,
         .rows = rows,
         .state = state_slots(step, place_, conv_state_bytes(inner + 2 * bc, spec_.conv_width)),
         .y = scanned,
         .reproducible = reproducible_},
        exec);
  const TensorView normed = exec.workspace.alloc(dtype_, {tokens, inner});
  const TensorView scanned_rows = scanned.reshape({tokens, inner});
  if (spec_.norm == Mamba2Norm::none) {
    gate_({.x = scanned_rows, .gate = gate, .act = Gate::silu, .y = normed}, exec);
  } else {
    const NormGate order = spec_.norm == Mamba2Norm::gate_first ? NormGate::before : NormGate::after;
    norm_.gated(scanned_rows, gate, order, normed, exec);
  }
  out_(normed, y, exec);
}

}  // namespace medley
