#include "layers/mlp.h"

namespace medley {

Mlp::Mlp(LoadContext& context, const MlpSpec& spec)
    : activation_(spec.activation), gated_(spec.gated()), dtype_(context.dtype) {
  const auto name = [&](const std::string& linear, const char* what) { return spec.prefix + linear + what; };
  const auto part = [&](const std::string& linear) {
    return LinearPart{name(linear, ".weight"),
                      spec.bias ? name(linear, ".bias") : "",
                      spec.intermediate,
                      spec.hidden,
                      {.dim = 0, .units = spec.intermediate}};
  };
  gate_up_ = gated_ ? ColumnParallelLinear(context, {part(spec.gate), part(spec.up)})
                    : ColumnParallelLinear(context, {part(spec.up)});
  inner_ = gate_up_.out() / (gated_ ? 2 : 1);
  down_ = RowParallelLinear(context, {.weight = name(spec.down, ".weight"),
                                      .bias = spec.bias ? name(spec.down, ".bias") : "",
                                      .out = spec.hidden,
                                      .in = spec.intermediate,
                                      .slice = {.units = spec.intermediate}});
  activate_ = context.kernels.resolve(gated_activation_op(),
                                      {.width = inner_, .activation = activation_, .gated = gated_, .y = dtype_});
}

void Mlp::forward(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const TensorView gate_up = exec.workspace.alloc(DType::f32, {x.size(0), gate_up_.out()});
  const TensorView inner = exec.workspace.alloc(dtype_, {x.size(0), inner_});
  gate_up_(x, gate_up, exec);
  activate_({.x = gate_up, .activation = activation_, .gated = gated_, .y = inner}, exec);
  down_(inner, y, exec);
}

}  // namespace medley
