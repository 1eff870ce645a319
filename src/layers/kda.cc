#include "layers/kda.h"

#include "layers/mamba.h"

namespace medley {

Kda::Kda(LoadContext& context, const KdaSpec& spec, CacheLayout& cache) : dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const int64_t all = spec.heads * spec.dim, heads = units_of(context.shard(), spec.heads).count;
  sizes_ = {.heads = heads,
            .key_heads = heads,
            .k_dim = spec.dim,
            .v_dim = spec.dim,
            .conv_width = spec.conv_width,
            .decay_per_channel = true,
            .gate = NormGate::after_sigmoid};
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
  DeltaRuleWeights weights;
  std::vector<float> conv;
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    const auto weight = context.weights.take_floats(at + name, {all, 1, spec.conv_width}, by_head);
    conv.insert(conv.end(), weight.begin(), weight.end());
  }
  weights.conv = Parameter(context, conv);
  weights.a = Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {1, 1, spec.heads, 1},
                                                                                  {.dim = 2, .units = spec.heads})));
  weights.dt_bias = take_parameter(context, at + "dt_bias", {all}, by_head);
  weights.norm = RmsNorm(context, at + "o_norm.weight", spec.dim, NormRule{spec.norm_eps});
  weights.out = RowParallelLinear(
      context, {.weight = at + "o_proj.weight", .out = spec.hidden, .in = all, .slice = {.units = spec.heads}});
  rule_ = DeltaRule(context, "delta attention", sizes_, std::move(weights), cache);
}

void Kda::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, dim = sizes_.k_dim, inner = sizes_.values();
  const TensorView projected = exec.workspace.alloc(DType::f32, {tokens, in_.out()});
  in_(x, projected, exec);
  const TensorView low = exec.workspace.alloc(dtype_, {tokens, 2 * dim});
  low_(x, low, exec);
  const TensorView decay = exec.workspace.alloc(DType::f32, {tokens, inner});
  const TensorView gate = exec.workspace.alloc(DType::f32, {tokens, inner});
  decay_(low.slice(1, 0, dim), decay, exec);
  gate_(low.slice(1, dim, dim), gate, exec);
  rule_.forward(step, projected.slice(1, 0, sizes_.channels()), decay,
                projected.slice(1, sizes_.channels(), sizes_.heads), gate, y, exec);
}

}  // namespace medley
