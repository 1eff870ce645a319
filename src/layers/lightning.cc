#include "layers/lightning.h"

#include <cmath>

namespace medley {

Lightning::Lightning(LoadContext& context, const LightningSpec& spec, CacheLayout& cache)
    : spec_(spec), dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const int64_t all = spec.heads * spec.dim;
  const UnitRange mine = units_of(context.shard(), spec.heads);
  heads_ = mine.count;
  const Slice by_head{.dim = 0, .units = spec.heads};
  qkv_ = ColumnParallelLinear(context, {{at + "qkv_proj.weight", "", 3 * all, spec.hidden, by_head}});
  gate_ = ColumnParallelLinear(context, {{at + "output_gate.weight", "", all, spec.hidden, by_head}});
  std::vector<float> decay;
  for (int64_t head = mine.begin; head < mine.begin + mine.count; ++head)
    decay.push_back(std::exp(-spec.slopes.at(size_t(head))));
  decay_ = Parameter(context, decay);
  load_tables(context, mine);
  norm_ = RmsNorm(context, at + "norm.weight", all, NormRule{spec.norm_eps}, by_head);
  out_ = RowParallelLinear(
      context, {.weight = at + "out_proj.weight", .out = spec.hidden, .in = all, .slice = {.units = spec.heads}});
  place_ = cache.add_state("lightning attention", lightning_state_bytes(heads_, spec.dim, spec.dim, block_),
                           fmt::format("{} x {} x {}, f32", heads_, spec.dim + 2 * block_, spec.dim));
  activate_ = context.kernels.resolve(
      gated_activation_op(),
      {.width = 3 * heads_ * spec.dim, .activation = spec.activation, .gated = false, .y = DType::f32});
  scan_ =
      context.kernels.resolve(lightning_op(), {.heads = heads_, .k_dim = spec.dim, .v_dim = spec.dim, .block = block_});
}

// transformers keeps the powers of the decay as buffers, and its exports store them beside the weights. In float32 they
// say nothing new; in bfloat16 they are off by up to 2^-9, and a model that is to give what that file gives must use
// them. That costs the keys and values of a block in every state.
void Lightning::load_tables(LoadContext& context, UnitRange mine) {
  const std::string& at = spec_.prefix;
  const int64_t heads = spec_.heads, block = spec_.block;
  if (block == 0 || !context.weights.has(at + "diagonal_decay")) return;
  const auto take = [&](const char* name, const std::vector<int64_t>& shape, int head_dim) {
    return context.weights.take_floats(at + name, shape, {.dim = head_dim, .units = heads});
  };
  const std::vector<float> query_decay = take("query_decay", {heads, block, 1}, 0);
  query_decay_ = Parameter(context, query_decay);
  key_decay_ = Parameter(context, take("key_decay", {heads, block, 1}, 0));
  diagonal_decay_ = Parameter(context, take("diagonal_decay", {1, heads, block, block}, 1));
  std::vector<float> block_decay = take("slope_rate", {heads, 1, 1}, 0);
  for (float& slope : block_decay) slope = std::exp(-slope * float(block));
  block_decay_ = Parameter(context, block_decay);
  // Rounded? A power in float32 is off by a few units, and by its exponent's own rounding.
  for (int64_t h = 0; h < mine.count; ++h)
    for (int64_t i = 0; i < block; ++i) {
      const double exponent = double(spec_.slopes[size_t(mine.begin + h)]) * double(i + 1);
      const double error = std::abs(double(query_decay[size_t(h * block + i)]) / std::exp(-exponent) - 1);
      if (error > (4 + 4 * exponent) * 0x1p-24) block_ = block;
    }
}

void Lightning::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, dim = spec_.dim, inner = heads_ * dim;
  const TensorView projected = exec.workspace.alloc(DType::f32, {tokens, 3 * inner});
  const TensorView gate = exec.workspace.alloc(DType::f32, {tokens, inner});
  qkv_(x, projected, exec);
  gate_(x, gate, exec);
  const TensorView activated = exec.workspace.alloc(DType::f32, {tokens, 3 * inner});
  activate_({.x = projected, .activation = spec_.activation, .gated = false, .y = activated}, exec);
  const TensorView qkv = activated.split_last(heads_, 3 * dim);
  const TensorView scanned = exec.workspace.alloc(DType::f32, {tokens, heads_, dim});
  scan_({.q = qkv.slice(2, 0, dim),
         .k = qkv.slice(2, dim, dim),
         .v = qkv.slice(2, 2 * dim, dim),
         .decay = decay_.data(),
         .tables = {block_, query_decay_.data(), key_decay_.data(), diagonal_decay_.data(), block_decay_.data()},
         .rows = ragged_rows(step),
         .state = state_slots(step, place_),
         .y = scanned},
        exec);
  const TensorView normed = exec.workspace.alloc(dtype_, {tokens, inner});
  norm_.gated(scanned.reshape({tokens, inner}), gate, NormGate::after_sigmoid, normed, exec);
  out_(normed, y, exec);
}

}  // namespace medley
