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
  matrix.data = static_cast<std::byte*>(stack.data) + bytes_of(stack.dtype, offset);
  return matrix;
}

// The one routing rule behind a shared expert's gate: its weight is the sigmoid of its logit.
constexpr RoutingRule shared_rule{.score = RouterScore::sigmoid, .experts = 1, .top_k = 1};

}  // namespace

// This rank's experts: views of the checkpoint, by expert its row parts; biases as their rows are packed.
struct Moe::ExpertViews {
  std::vector<std::vector<TensorView>> gate_up, down;
  std::vector<float> gate_up_bias, down_bias;  // [experts, rows]; empty: none
};

Moe::Moe(LoadContext& context, const MoeSpec& spec)
    : spec_(spec), dtype_(context.dtype), device_(context.kernels.device()), comm_(&context.comm) {
  // As GGUF files have the experts of families that put gate and up into one tensor.
  const bool one_tensor = spec.storage == ExpertStorage::stacked || spec.storage == ExpertStorage::interleaved;
  if (one_tensor && context.weights.has(spec.prefix + "experts.up_proj.weight")) {
    spec_.storage = ExpertStorage::separate;
    spec_.gate = "experts.gate_proj", spec_.up = "experts.up_proj", spec_.down = "experts.down_proj";
  }
  const RoutingRule& rule = spec.rule;
  constexpr int32_t most_experts = 1 << 16;
  if (rule.experts > most_experts)
    fail("{}config.json says {} experts; at most {} are built", spec.prefix, rule.experts, most_experts);
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
  align_ = context.kernels.resolve(align_op(), {.experts = rule.experts, .slots = int32_t(gate_up_.slots())});
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

Moe::ExpertViews Moe::take_stacked(LoadContext& context, UnitRange mine) const {
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
  views.gate_up_bias = bias(spec_.gate_up, 2 * inner);
  views.down_bias = bias(spec_.down, hidden);
  if (!transposed) return views;
  // As the weights are packed: the gate's rows, then those of up.
  for (int64_t e = 0; e < mine.count; ++e) {
    const auto at = views.gate_up_bias.begin() + e * 2 * inner;
    std::vector<float> stored(at, at + 2 * inner);
    for (int64_t i = 0; i < 2 * inner; ++i) at[i % 2 * inner + i / 2] = stored[size_t(i)];
  }
  return views;
}

Moe::ExpertViews Moe::take_separate(LoadContext& context, UnitRange mine) const {
  const int64_t experts = spec_.rule.experts, hidden = spec_.hidden, inner = spec_.intermediate;
  ExpertViews views;
  views.gate_up.resize(size_t(mine.count));
  views.down.resize(size_t(mine.count));
  const auto take = [&](const std::string& name, int64_t rows, int64_t k, std::vector<std::vector<TensorView>>& to) {
    const TensorView stack =
        context.weights.take(spec_.prefix + name + ".weight", {experts, rows, k}, {.units = experts});
    for (int64_t e = 0; e < mine.count; ++e) to[size_t(e)].push_back(expert_rows(stack, e, false, 0, 1, rows));
  };
  if (spec_.gated()) take(spec_.gate, inner, hidden, views.gate_up);
  take(spec_.up, inner, hidden, views.gate_up);
  take(spec_.down, hidden, inner, views.down);
  if (!spec_.bias) return views;
  const auto bias = [&](const std::string& name, int64_t rows) {
    return context.weights.take_floats(spec_.prefix + name + ".bias", {experts, rows}, {.units = experts});
  };
  const std::vector<float> gate = spec_.gated() ? bias(spec_.gate, inner) : std::vector<float>();
  const std::vector<float> up = bias(spec_.up, inner);
  for (int64_t e = 0; e < mine.count; ++e)
    for (const std::vector<float>* part : {&gate, &up})
      if (!part->empty())
        views.gate_up_bias.insert(views.gate_up_bias.end(), part->begin() + e * inner, part->begin() + (e + 1) * inner);
  views.down_bias = bias(spec_.down, hidden);
  return views;
}

void Moe::load_experts(LoadContext& context) {
  const int64_t inner = spec_.intermediate;
  const UnitRange mine = units_of(context.shard(), spec_.rule.experts);
  up_width_ = spec_.gated() ? 2 * inner : inner;
  if (mine.count < spec_.rule.experts) {
    std::vector<int32_t> expert_to_slot(size_t(spec_.rule.experts), -1);
    for (int64_t e = mine.begin; e < mine.begin + mine.count; ++e) expert_to_slot[size_t(e)] = int32_t(e - mine.begin);
    expert_to_slot_ = ParameterArray<int32_t>(context, expert_to_slot);
  }
  context.weights.set_active(double(spec_.rule.top_k) / spec_.rule.experts);
  const ExpertViews views = spec_.storage == ExpertStorage::apart      ? take_apart(context, mine)
                            : spec_.storage == ExpertStorage::separate ? take_separate(context, mine)
                                                                       : take_stacked(context, mine);
  context.weights.set_active(1);
  gate_up_ = ExpertLinear(context, views.gate_up, views.gate_up_bias);
  down_ = ExpertLinear(context, views.down, views.down_bias);
  if (spec_.gated()) gate_up_.find_gated(context, spec_.activation, dtype_);
}

void Moe::load_shared(LoadContext& context) {
  if (!spec_.shared) return;
  shared_.emplace(context, *spec_.shared);
  if (spec_.shared_gate.empty()) return;
  shared_gate_.emplace(context, std::vector<LinearPart>{{spec_.prefix + spec_.shared_gate, "", 1, spec_.hidden, {}}});
  route_shared_ = context.kernels.resolve(route_op(), {.rule = shared_rule});
}

AlignArgs Moe::alignment(const TensorView& topk_ids, ExecContext& exec) const {
  const int64_t pairs = topk_ids.elements(), slots = gate_up_.slots();
  // Rows a block. Blocks only tile M: no output depends on them. On the host no more than an expert gets on average, so
  // that padding stays small; on a device twice that, so that few experts' weights are read more than once, and at
  // least what its matrix instruction takes.
  const bool host = device_ == Device::cpu;
  const int64_t wanted = host ? pairs : 2 * pairs, most = host ? 64 : 128;
  int64_t block_m = host ? 1 : 8;
  while (block_m < most && block_m * slots < wanted) block_m *= 2;
  const int64_t capacity = align_capacity(pairs, slots, block_m);
  return {.topk_ids = topk_ids,
          .expert_to_slot = expert_to_slot_.data(),
          .experts = spec_.rule.experts,
          .slots = int32_t(slots),
          .block_m = block_m,
          .sorted_token_ids = exec.workspace.alloc(DType::i32, {capacity}),
          .expert_ids = exec.workspace.alloc(DType::i32, {capacity / block_m}),
          .num_tokens_post_padded = exec.workspace.alloc(DType::i32, {1})};
}

void Moe::forward(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = x.size(0), top_k = spec_.rule.top_k, pairs = tokens * top_k;
  // The shared experts wait for nothing below. Beside the routed ones where each alone leaves most of a device idle.
  TensorView shared;
  const bool beside = shared_ && tokens <= most_tokens_beside;
  // To y itself where nothing else happens to it: the routed experts' sum is added there.
  const bool into_y = beside && !shared_gate_ && comm_->size() == 1;
  if (beside) {
    shared = into_y ? y : exec.workspace.alloc(DType::f32, {tokens, spec_.hidden});
    exec.fork([&](ExecContext& side) { shared_->forward(x, shared, side); });
  }

  // 1. Route: each token's experts and weights.
  const TensorView logits = exec.workspace.alloc(DType::f32, {tokens, spec_.rule.experts});
  const TensorView topk_ids = exec.workspace.alloc(DType::i32, {tokens, top_k});
  const TensorView topk_weights = exec.workspace.alloc(DType::f32, {tokens, top_k});
  router_(x, logits, exec);
  const RouteArgs route{.logits = logits,
                        .correction_bias = correction_bias_.data(),
                        .rule = spec_.rule,
                        .topk_ids = topk_ids,
                        .topk_weights = topk_weights};

  // 2. Align: pairs (token, k) sorted by slot, in blocks.
  const AlignArgs aligned = alignment(topk_ids, exec);
  route_(route, exec);
  align_(aligned, exec);

  // 3. Dispatch: every rank has every token, so the rows are where they are needed.
  const TensorView& rows = x;

  // 4. The experts.
  const TensorView inner = exec.workspace.alloc(dtype_, {pairs, spec_.intermediate});
  const TensorView outputs = exec.workspace.alloc(DType::f32, {pairs, spec_.hidden});
  GroupedLinearArgs gemm{.x = rows,
                         .x_divisor = top_k,
                         .y = inner,
                         .sorted_token_ids = aligned.sorted_token_ids.as<int32_t>(),
                         .expert_ids = aligned.expert_ids.as<int32_t>(),
                         .num_tokens_post_padded = aligned.num_tokens_post_padded.as<int32_t>(),
                         .num_pairs = pairs,
                         .block_m = aligned.block_m};
  if (gate_up_.has_gated()) {
    gate_up_.gated({gemm, spec_.activation}, exec);
  } else {
    gemm.y = exec.workspace.alloc(DType::f32, {pairs, up_width_});
    gate_up_(gemm, exec);
    activate_({.x = gemm.y, .activation = spec_.activation, .gated = spec_.gated(), .y = inner}, exec);
  }
  gemm.x = inner;
  gemm.x_divisor = 1;
  gemm.y = outputs;
  down_(gemm, exec);

  // 5. Combine: the outputs are where they are summed.
  // 6. Weighted sum, in ascending expert id.
  if (into_y) {
    exec.join();
    sum_({.x = outputs, .topk_weights = topk_weights, .y = y, .accumulate = true}, exec);
    return;
  }
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
