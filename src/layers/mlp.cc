#include "layers/mlp.h"

namespace medley {

Mlp::Mlp(LoadContext& context, const MlpSpec& spec)
    : activation_(spec.activation), gated_(spec.gated()), dtype_(context.dtype) {
  const bool elsewhere = !spec.or_prefix.empty() && context.weights.has_prefix(spec.or_prefix);
  const std::string& at = elsewhere ? spec.or_prefix : spec.prefix;
  const auto name = [&](const std::string& linear, const char* what) { return at + linear + what; };
  // `rows` of a tensor, from `begin` on those of this part.
  const auto part = [&](const std::string& linear, int64_t rows, int64_t begin, float scale = 1) {
    return LinearPart{name(linear, ".weight"),
                      spec.bias ? name(linear, ".bias") : "",
                      rows,
                      spec.hidden,
                      {.dim = 0, .begin = begin, .count = spec.intermediate, .units = spec.intermediate},
                      scale};
  };
  const int64_t inner = spec.intermediate;
  std::vector<LinearPart> parts;
  if (!spec.gate_over_up.empty()) {
    parts = {part(spec.gate_over_up, 2 * inner, 0, spec.gate_scale), part(spec.gate_over_up, 2 * inner, inner)};
  } else {
    if (gated_) parts.push_back(part(spec.gate, inner, 0, spec.gate_scale));
    parts.push_back(part(spec.up, inner, 0));
  }
  gate_up_ = ColumnParallelLinear(context, parts);
  if (spec.adapter_rank > 0)
    adapter_.emplace(context, at + spec.adapter, spec.hidden, spec.adapter_rank, 2 * inner,
                     std::vector<Slice>{parts.at(0).slice, parts.at(1).slice});
  inner_ = gate_up_.out() / (gated_ ? 2 : 1);
  down_ = RowParallelLinear(context, {.weight = name(spec.down, ".weight"),
                                      .bias = spec.bias ? name(spec.down, ".bias") : "",
                                      .out = spec.hidden,
                                      .in = spec.intermediate,
                                      .slice = {.units = spec.intermediate},
                                      .scale = spec.down_scale});
  activate_ = context.kernels.resolve(gated_activation_op(),
                                      {.width = inner_, .activation = activation_, .gated = gated_, .y = dtype_});
}

void Mlp::forward(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const TensorView gate_up = exec.workspace.alloc(DType::f32, {x.size(0), gate_up_.out()});
  const TensorView inner = exec.workspace.alloc(dtype_, {x.size(0), inner_});
  gate_up_(x, gate_up, exec);
  if (adapter_) adapter_->add(x, gate_up, exec);
  activate_({.x = gate_up, .activation = activation_, .gated = gated_, .y = inner}, exec);
  down_(inner, y, exec);
}

}  // namespace medley
