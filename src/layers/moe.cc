#include "layers/moe.h"

#include <algorithm>

namespace medley {
namespace {

// Rows [first, first + rows), every `step`th, of expert `index` in a stack [experts, rows, k], or of one stored
// transposed, [experts, k, rows].
TensorView expert_rows(const TensorView& stack, int64_t index, bool transposed, int64_t first, int64_t step,
                       int64_t rows) {
  const int row_dim = transposed ? 2 : 1, k_dim = transposed ? 1 : 2;
  TensorView matrix = stack;
  matrix.rank = 2;
  matrix.shape = {rows, stack.size(k_dim)};
  matrix.strides = {stack.strides[row_dim] * step, stack.strides[k_dim]};
  if (stack.data == nullptr) return matrix;  // planning
  const int64_t offset = index * stack.strides[0] + first * stack.strides[row_dim];
  matrix.data = static_cast<std::byte*>(stack.data) + offset * int64_t(size_of(stack.dtype));
  return matrix;
}

// The one routing rule behind a shared expert's gate: its weight is the sigmoid of its logit.
constexpr RoutingRule shared_rule{.score = RouterScore::sigmoid, .experts = 1, .top_k = 1};

}  // namespace

// This rank's experts as views of the checkpoint: by expert, its row parts.
struct Moe::ExpertViews {
  std::vector<std::vector<TensorView>> gate_up, down;
};

Moe::Moe(LoadContext& context, const MoeSpec& spec) : spec_(spec), dtype_(context.dtype), comm_(&context.comm) {
  const RoutingRule& rule = spec.rule;
  if (rule.top_k <= 0 || rule.top_k > rule.experts)
    fail("{}num_experts_per_tok is {}, of {} experts", spec.prefix, rule.top_k, rule.experts);
  if (rule.group_score != GroupScore::none &&
      (rule.groups <= 0 || rule.experts % rule.groups != 0 || rule.top_groups <= 0 || rule.top_groups > rule.groups ||
       rule.top_k > rule.experts / rule.groups * rule.top_groups))
    fail("{}n_group {} and topk_group {} do not fit {} experts with {} chosen", spec.prefix, rule.groups,
         rule.top_groups, rule.experts, rule.top_k);
  const std::string router_bias = spec.router_bias.empty() ? "" : spec.prefix + spec.router_bias;
  router_ = Linear(context, {{spec.prefix + spec.router, router_bias, rule.experts, spec.hidden, {}}});
  if (!spec.correction_bias.empty())
    correction_bias_ = take_parameter(context, spec.prefix + spec.correction_bias, {rule.experts});
  load_experts(context);
  load_shared(context);
  route_ = context.kernels.resolve(route_op(), {.rule = rule});
  align_ = context.kernels.resolve(align_op(), {.experts = rule.experts, .slots = int32_t(gate_up_.view.slots)});
  activate_ = context.kernels.resolve(
      gated_activation_op(),
      {.width = spec.intermediate, .activation = spec.activation, .gated = spec.gated(), .y = dtype_});
  sum_ = context.kernels.resolve(weighted_sum_op(), {.dim = spec.hidden});
  add_ = context.kernels.resolve(add_op(), {});
}

Moe::ExpertViews Moe::take_apart(LoadContext& context, UnitRange mine) const {
  const int64_t hidden = spec_.hidden, inner = spec_.intermediate;
  ExpertViews views;
  for (int64_t e = mine.begin; e < mine.begin + mine.count; ++e) {
    const std::string at = fmt::format("{}experts.{}.", spec_.prefix, e);
    std::vector<TensorView> parts;
    if (spec_.gated()) parts.push_back(context.weights.take(at + spec_.gate + ".weight", {inner, hidden}));
    parts.push_back(context.weights.take(at + spec_.up + ".weight", {inner, hidden}));
    views.gate_up.push_back(std::move(parts));
    views.down.push_back({context.weights.take(at + spec_.down + ".weight", {hidden, inner})});
  }
  return views;
}

Moe::ExpertViews Moe::take_stacked(LoadContext& context, UnitRange mine) {
  const int64_t experts = spec_.rule.experts, hidden = spec_.hidden, inner = spec_.intermediate;
  const bool transposed = spec_.storage == ExpertStorage::interleaved;
  const auto take = [&](const std::string& name, int64_t rows, int64_t k) {
    std::vector<int64_t> shape{experts, rows, k};
    if (transposed) std::swap(shape[1], shape[2]);
    return context.weights.take(spec_.prefix + name, shape, {.units = experts});
  };
  const TensorView gate_up = take(spec_.gate_up, 2 * inner, hidden), down = take(spec_.down, hidden, inner);
  ExpertViews views;
  for (int64_t e = 0; e < mine.count; ++e) {
    const int64_t step = transposed ? 2 : 1, up = transposed ? 1 : inner;
    views.gate_up.push_back(
        {expert_rows(gate_up, e, transposed, 0, step, inner), expert_rows(gate_up, e, transposed, up, step, inner)});
    views.down.push_back({expert_rows(down, e, transposed, 0, 1, hidden)});
  }
  if (!spec_.bias) return views;
  const auto bias = [&](const std::string& name, int64_t rows) {
    return context.weights.take_floats(spec_.prefix + name + "_bias", {experts, rows}, {.units = experts});
  };
  std::vector<float> gate_up_bias = bias(spec_.gate_up, 2 * inner);
  down_bias_ = Parameter(context, bias(spec_.down, hidden));
  // As the weights are packed: the gate's rows, then those of up.
  for (int64_t e = 0; transposed && e < mine.count; ++e) {
    const auto at = gate_up_bias.begin() + e * 2 * inner;
    std::vector<float> stored(at, at + 2 * inner);
    for (int64_t i = 0; i < 2 * inner; ++i) at[i % 2 * inner + i / 2] = stored[size_t(i)];
  }
  gate_up_bias_ = Parameter(context, gate_up_bias);
  return views;
}

void Moe::load_experts(LoadContext& context) {
  const int64_t hidden = spec_.hidden, inner = spec_.intermediate;
  const UnitRange mine = units_of(context.shard(), spec_.rule.experts);
  up_width_ = spec_.gated() ? 2 * inner : inner;
  std::vector<int32_t> expert_to_slot(size_t(spec_.rule.experts), -1);
  for (int64_t e = mine.begin; e < mine.begin + mine.count; ++e) expert_to_slot[size_t(e)] = int32_t(e - mine.begin);
  expert_to_slot_ = ParameterArray<int32_t>(context, expert_to_slot);
  context.weights.set_active(double(spec_.rule.top_k) / spec_.rule.experts);
  const ExpertViews views =
      spec_.storage == ExpertStorage::apart ? take_apart(context, mine) : take_stacked(context, mine);
  context.weights.set_active(1);
  GroupedLinearDesc desc;
  desc.slots = mine.count;
  desc.x = dtype_;
  desc.in = hidden, desc.out = up_width_, desc.weight = views.gate_up.at(0)[0].dtype;
  up_gemm_ = context.kernels.resolve(grouped_linear_op(), desc);
  desc.in = inner, desc.out = hidden, desc.weight = views.down.at(0)[0].dtype;
  down_gemm_ = context.kernels.resolve(grouped_linear_op(), desc);
  gate_up_ = pack_matrices(context, up_gemm_.layout, views.gate_up);
  down_ = pack_matrices(context, down_gemm_.layout, views.down);
}

void Moe::load_shared(LoadContext& context) {
  if (!spec_.shared) return;
  shared_.emplace(context, *spec_.shared);
  if (spec_.shared_gate.empty()) return;
  shared_gate_.emplace(context, std::vector<LinearPart>{{spec_.prefix + spec_.shared_gate, "", 1, spec_.hidden, {}}});
  route_shared_ = context.kernels.resolve(route_op(), {.rule = shared_rule});
}

Moe::Aligned Moe::align(const TensorView& topk_ids, ExecContext& exec) const {
  const int64_t pairs = topk_ids.elements(), slots = gate_up_.view.slots;
  Aligned aligned;
  // Rows a block: no more than an expert gets on average, so that padding stays small. Blocks only tile M: no output
  // depends on them.
  aligned.block_m = 1;
  while (aligned.block_m < 64 && aligned.block_m * slots < pairs) aligned.block_m *= 2;
  const int64_t capacity = align_capacity(pairs, slots, aligned.block_m);
  aligned.sorted_token_ids = exec.workspace.alloc(DType::i32, {capacity});
  aligned.expert_ids = exec.workspace.alloc(DType::i32, {capacity / aligned.block_m});
  aligned.num_tokens_post_padded = exec.workspace.alloc(DType::i32, {1});
  align_({.topk_ids = topk_ids,
          .expert_to_slot = expert_to_slot_.data(),
          .experts = spec_.rule.experts,
          .slots = int32_t(slots),
          .block_m = aligned.block_m,
          .sorted_token_ids = aligned.sorted_token_ids,
          .expert_ids = aligned.expert_ids,
          .num_tokens_post_padded = aligned.num_tokens_post_padded},
         exec);
  return aligned;
}

void Moe::forward(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = x.size(0), top_k = spec_.rule.top_k, pairs = tokens * top_k;
  // The shared experts wait for nothing below. Beside the routed ones where each alone leaves most of a device idle.
  TensorView shared;
  const bool beside = shared_ && tokens <= most_tokens_beside;
  if (beside) {
    shared = exec.workspace.alloc(DType::f32, {tokens, spec_.hidden});
    exec.fork([&](ExecContext& side) { shared_->forward(x, shared, side); });
  }

  // 1. Route: each token's experts and weights.
  const TensorView logits = exec.workspace.alloc(DType::f32, {tokens, spec_.rule.experts});
  const TensorView topk_ids = exec.workspace.alloc(DType::i32, {tokens, top_k});
  const TensorView topk_weights = exec.workspace.alloc(DType::f32, {tokens, top_k});
  router_(x, logits, exec);
  route_({.logits = logits,
          .correction_bias = correction_bias_.data(),
          .rule = spec_.rule,
          .topk_ids = topk_ids,
          .topk_weights = topk_weights},
         exec);

  // 2. Align: pairs (token, k) sorted by slot, in blocks.
  const Aligned aligned = align(topk_ids, exec);

  // 3. Dispatch: every rank has every token, so the rows are where they are needed.
  const TensorView& rows = x;

  // 4. The experts.
  const TensorView gate_up = exec.workspace.alloc(DType::f32, {pairs, up_width_});
  const TensorView inner = exec.workspace.alloc(dtype_, {pairs, spec_.intermediate});
  const TensorView outputs = exec.workspace.alloc(DType::f32, {pairs, spec_.hidden});
  GroupedLinearArgs gemm{.x = rows,
                         .x_divisor = top_k,
                         .weight = gate_up_.view,
                         .bias = gate_up_bias_.data(),
                         .y = gate_up,
                         .sorted_token_ids = aligned.sorted_token_ids.as<int32_t>(),
                         .expert_ids = aligned.expert_ids.as<int32_t>(),
                         .num_tokens_post_padded = aligned.num_tokens_post_padded.as<int32_t>(),
                         .num_pairs = pairs,
                         .block_m = aligned.block_m};
  up_gemm_(gemm, exec);
  activate_({.x = gate_up, .activation = spec_.activation, .gated = spec_.gated(), .y = inner}, exec);
  gemm.x = inner;
  gemm.x_divisor = 1;
  gemm.weight = down_.view;
  gemm.bias = down_bias_.data();
  gemm.y = outputs;
  down_gemm_(gemm, exec);

  // 5. Combine: the outputs are where they are summed.
  // 6. Weighted sum, in ascending expert id.
  sum_({.x = outputs, .topk_weights = topk_weights, .y = y}, exec);
  comm_->all_reduce(y);

  if (beside) exec.join();
  if (shared_) add_shared(x, shared, y, exec);
}

// `shared`: what the shared experts made of x, or empty.
void Moe::add_shared(const TensorView& x, TensorView shared, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = x.size(0);
  if (!shared) {
    shared = exec.workspace.alloc(DType::f32, {tokens, spec_.hidden});
    shared_->forward(x, shared, exec);
  }
  if (!shared_gate_) {
    add_({.x = shared, .y = y}, exec);
    return;
  }
  const TensorView logits = exec.workspace.alloc(DType::f32, {tokens, 1});
  const TensorView ids = exec.workspace.alloc(DType::i32, {tokens, 1});
  const TensorView weights = exec.workspace.alloc(DType::f32, {tokens, 1});
  (*shared_gate_)(x, logits, exec);
  route_shared_({.logits = logits, .rule = shared_rule, .topk_ids = ids, .topk_weights = weights}, exec);
  sum_({.x = shared, .topk_weights = weights, .y = y, .accumulate = true}, exec);
}

}  // namespace medley
