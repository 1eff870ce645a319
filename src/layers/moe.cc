#include "layers/moe.h"

#include <algorithm>

namespace medley {

Moe::Moe(LoadContext& context, const MoeSpec& spec) : spec_(spec), dtype_(context.dtype), comm_(&context.comm) {
  const RoutingRule& rule = spec.rule;
  if (rule.top_k <= 0 || rule.top_k > rule.experts)
    fail("{}num_experts_per_tok is {}, of {} experts", spec.prefix, rule.top_k, rule.experts);
  if (rule.group_score != GroupScore::none &&
      (rule.groups <= 0 || rule.experts % rule.groups != 0 || rule.top_groups <= 0 || rule.top_groups > rule.groups ||
       rule.top_k > rule.experts / rule.groups * rule.top_groups))
    fail("{}n_group {} and topk_group {} do not fit {} experts with {} chosen", spec.prefix, rule.groups,
         rule.top_groups, rule.experts, rule.top_k);
  router_ = Linear(context, {{spec.prefix + spec.router, "", rule.experts, spec.hidden, {}}});
  if (!spec.correction_bias.empty())
    correction_bias_ = context.weights.take_floats(spec.prefix + spec.correction_bias, {rule.experts});
  load_experts(context);
  if (spec.shared) shared_.emplace(context, *spec.shared);
  route_ = context.kernels.resolve(route_op(), {.rule = rule});
  align_ = context.kernels.resolve(align_op(), {.experts = rule.experts, .slots = int32_t(gate_up_.view.slots)});
  activate_ = context.kernels.resolve(
      gated_activation_op(), {.width = spec.intermediate, .activation = spec.activation, .gated = true, .y = dtype_});
  sum_ = context.kernels.resolve(weighted_sum_op(), {.dim = spec.hidden});
  add_ = context.kernels.resolve(add_op(), {});
}

void Moe::load_experts(LoadContext& context) {
  const int64_t hidden = spec_.hidden, inner = spec_.intermediate;
  const UnitRange mine = units_of(context.shard(), spec_.rule.experts);
  expert_to_slot_.assign(size_t(spec_.rule.experts), -1);
  std::vector<std::vector<TensorView>> gate_up, down;
  context.weights.set_active(double(spec_.rule.top_k) / spec_.rule.experts);
  for (int64_t e = mine.begin; e < mine.begin + mine.count; ++e) {
    const std::string at = fmt::format("{}experts.{}.", spec_.prefix, e);
    expert_to_slot_[size_t(e)] = int32_t(e - mine.begin);
    gate_up.push_back({context.weights.take(at + spec_.gate + ".weight", {inner, hidden}),
                       context.weights.take(at + spec_.up + ".weight", {inner, hidden})});
    down.push_back({context.weights.take(at + spec_.down + ".weight", {hidden, inner})});
  }
  context.weights.set_active(1);
  GroupedLinearDesc desc;
  desc.slots = mine.count;
  desc.x = dtype_;
  desc.in = hidden, desc.out = 2 * inner, desc.weight = gate_up.at(0)[0].dtype;
  up_gemm_ = context.kernels.resolve(grouped_linear_op(), desc);
  desc.in = inner, desc.out = hidden, desc.weight = down.at(0)[0].dtype;
  down_gemm_ = context.kernels.resolve(grouped_linear_op(), desc);
  gate_up_ = pack_matrices(context, up_gemm_.layout, gate_up);
  down_ = pack_matrices(context, down_gemm_.layout, down);
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

  // 1. Route: each token's experts and weights.
  const TensorView logits = exec.workspace.alloc(DType::f32, {tokens, spec_.rule.experts});
  const TensorView topk_ids = exec.workspace.alloc(DType::i32, {tokens, top_k});
  const TensorView topk_weights = exec.workspace.alloc(DType::f32, {tokens, top_k});
  router_(x, logits, exec);
  route_({.logits = logits,
          .correction_bias = correction_bias_.empty() ? nullptr : correction_bias_.data(),
          .rule = spec_.rule,
          .topk_ids = topk_ids,
          .topk_weights = topk_weights},
         exec);

  // 2. Align: pairs (token, k) sorted by slot, in blocks.
  const Aligned aligned = align(topk_ids, exec);

  // 3. Dispatch: every rank has every token, so the rows are where they are needed.
  const TensorView& rows = x;

  // 4. The experts.
  const TensorView gate_up = exec.workspace.alloc(DType::f32, {pairs, 2 * spec_.intermediate});
  const TensorView inner = exec.workspace.alloc(dtype_, {pairs, spec_.intermediate});
  const TensorView outputs = exec.workspace.alloc(DType::f32, {pairs, spec_.hidden});
  GroupedLinearArgs gemm{.x = rows,
                         .x_divisor = top_k,
                         .weight = gate_up_.view,
                         .y = gate_up,
                         .sorted_token_ids = aligned.sorted_token_ids.as<int32_t>(),
                         .expert_ids = aligned.expert_ids.as<int32_t>(),
                         .num_tokens_post_padded = aligned.num_tokens_post_padded.as<int32_t>(),
                         .num_pairs = pairs,
                         .block_m = aligned.block_m};
  up_gemm_(gemm, exec);
  activate_({.x = gate_up, .activation = spec_.activation, .y = inner}, exec);
  gemm.x = inner;
  gemm.x_divisor = 1;
  gemm.weight = down_.view;
  gemm.y = outputs;
  down_gemm_(gemm, exec);

  // 5. Combine: the outputs are where they are summed.
  // 6. Weighted sum, in ascending expert id.
  sum_({.x = outputs, .topk_weights = topk_weights, .y = y}, exec);
  comm_->all_reduce(y);

  if (shared_) {
    const TensorView shared = exec.workspace.alloc(DType::f32, {tokens, spec_.hidden});
    shared_->forward(x, shared, exec);
    add_({.x = shared, .y = y}, exec);
  }
}

}  // namespace medley
