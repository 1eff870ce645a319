// Mixture of experts: routing, alignment, and the experts' products with activation and weighted sum.
#include "cuda_bench.h"
#include "kernels/moe.h"
#include "kernels/pointwise.h"

namespace medley::bench {
namespace {

void routing(Bench& bench, int64_t tokens) {
  constexpr int32_t experts = 256, top_k = 8;
  constexpr int64_t block_m = 16;
  const RoutingRule rule{.score = RouterScore::sigmoid,
                         .group_score = GroupScore::top2_sum,
                         .experts = experts,
                         .top_k = top_k,
                         .groups = 8,
                         .top_groups = 4,
                         .renormalize = true,
                         .scaling = 2.5f};
  const int64_t capacity = align_capacity(tokens * top_k, experts, block_m);
  const RouteArgs route{.logits = bench.random(DType::f32, {tokens, experts}),
                        .correction_bias = bench.random(DType::f32, {experts}, 0.1f).as<float>(),
                        .rule = rule,
                        .topk_ids = bench.alloc(DType::i32, {tokens, top_k}),
                        .topk_weights = bench.alloc(DType::f32, {tokens, top_k})};
  const AlignArgs align{.topk_ids = route.topk_ids,
                        .experts = experts,
                        .slots = experts,
                        .block_m = block_m,
                        .sorted_token_ids = bench.alloc(DType::i32, {capacity}),
                        .expert_ids = bench.alloc(DType::i32, {capacity / block_m}),
                        .num_tokens_post_padded = bench.alloc(DType::i32, {1})};
  const auto first = KernelSelector(Device::cuda).resolve(route_op(), {rule});
  const auto second = KernelSelector(Device::cuda).resolve(align_op(), {experts, experts});
  const double bytes = double(route.logits.bytes()) + 3.0 * double(tokens * top_k) * 4;
  bench.report(fmt::format("{} E256 top-8 T={}", first.name, tokens), [&] { first(route, bench.context); }, bytes, 0,
               {});
  bench.report(fmt::format("{} E256 top-8 T={}", second.name, tokens), [&] { second(align, bench.context); }, bytes, 0,
               {});
  const auto both = [&] {
    first(route, bench.context);
    second(align, bench.context);
  };
  bench.report(fmt::format("route + align E256 top-8 T={}", tokens), both, bytes, 0, {},
               fmt::format("route_align {}", tokens));
  bench.buffers.clear();
}

// Experts chosen at random, each token's all different.
std::vector<int32_t> choices(int64_t tokens, int32_t experts, int32_t top_k) {
  std::mt19937 engine(5);
  std::vector<int32_t> all(static_cast<size_t>(experts)), ids;
  for (size_t e = 0; e < all.size(); ++e) all[e] = int32_t(e);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int32_t i = 0; i < top_k; ++i) {
      std::swap(all[size_t(i)], all[size_t(i) + engine() % (all.size() - size_t(i))]);
      ids.push_back(all[size_t(i)]);
    }
    std::sort(ids.end() - top_k, ids.end());
  }
  return ids;
}

void experts_layer(Bench& bench, const char* name, int64_t tokens, int32_t experts, int32_t top_k, int64_t hidden,
                   int64_t width, bool checked) {
  const int64_t pairs = tokens * top_k;
  int64_t block_m = 8;
  while (block_m < 128 && block_m * experts < 2 * pairs) block_m *= 2;
  const int64_t capacity = align_capacity(pairs, experts, block_m);
  const std::vector<int32_t> chosen = choices(tokens, experts, top_k);
  std::vector<bool> used(static_cast<size_t>(experts));
  for (int32_t e : chosen) used[size_t(e)] = true;
  const double active = double(std::count(used.begin(), used.end(), true));
  const TensorView up = bench.random(DType::bf16, {experts, 2 * width, hidden}, 0.03f),
                   down = bench.random(DType::bf16, {experts, hidden, width}, 0.03f);
  const AlignArgs align{.topk_ids = bench.values(DType::i32, chosen, {tokens, top_k}),
                        .experts = experts,
                        .slots = experts,
                        .block_m = block_m,
                        .sorted_token_ids = bench.alloc(DType::i32, {capacity}),
                        .expert_ids = bench.alloc(DType::i32, {capacity / block_m}),
                        .num_tokens_post_padded = bench.alloc(DType::i32, {1})};
  const auto weight = [&](const TensorView& w) {
    return WeightView{.data = static_cast<std::byte*>(w.data),
                      .n = w.size(1),
                      .k = w.size(2),
                      .slots = experts,
                      .slot_bytes = w.size(1) * w.size(2) * 2};
  };
  GroupedLinearArgs first{.x = bench.random(DType::bf16, {tokens, hidden}),
                          .x_divisor = top_k,
                          .weight = weight(up),
                          .y = bench.alloc(DType::f32, {pairs, 2 * width}),
                          .sorted_token_ids = align.sorted_token_ids.as<int32_t>(),
                          .expert_ids = align.expert_ids.as<int32_t>(),
                          .num_tokens_post_padded = align.num_tokens_post_padded.as<int32_t>(),
                          .num_pairs = pairs,
                          .block_m = block_m};
  const GatedActivationArgs act{.x = first.y, .y = bench.alloc(DType::bf16, {pairs, width})};
  GroupedLinearArgs second = first;
  second.x = act.y, second.x_divisor = 1, second.weight = weight(down);
  second.y = bench.alloc(DType::f32, {pairs, hidden});
  const WeightedSumArgs sum{.x = second.y,
                            .topk_weights = bench.random(DType::f32, {tokens, top_k}),
                            .y = bench.alloc(DType::f32, {tokens, hidden})};
  const auto desc = [&](const WeightView& w) {
    GroupedLinearDesc d;
    d.in = w.k, d.out = w.n, d.x = DType::bf16, d.slots = experts;
    return d;
  };
  KernelSelector any(Device::cuda), portable(Device::cuda, Level::cuda);
  const auto align_kernel = any.resolve(align_op(), {experts, experts});
  const auto act_kernel = any.resolve(gated_activation_op(), {width, Activation::silu, true, DType::bf16});
  const auto sum_kernel = any.resolve(weighted_sum_op(), {hidden});
  const auto up_kernel = any.resolve(grouped_linear_op(), desc(first.weight));
  const auto down_kernel = any.resolve(grouped_linear_op(), desc(second.weight));
  GatedGroupedLinearArgs gated{first, Activation::silu};
  gated.y = act.y;
  const auto gated_kernel =
      any.find(gated_grouped_linear_op(), GatedGroupedLinearDesc{desc(first.weight), Activation::silu, DType::bf16});
  align_kernel(align, bench.context);
  std::optional<double> error;  // the portable kernel is too slow for the largest case
  up_kernel(first, bench.context);
  if (checked) {
    GroupedLinearArgs reference = first;
    reference.y = bench.alloc(DType::f32, {pairs, 2 * width});
    portable.resolve(grouped_linear_op(), desc(first.weight))(reference, bench.context);
    error = relative_error(first.y, reference.y);
  }
  act_kernel(act, bench.context);
  if (checked) {
    GroupedLinearArgs reference = second;
    reference.y = bench.alloc(DType::f32, {pairs, hidden});
    down_kernel(second, bench.context);
    portable.resolve(grouped_linear_op(), desc(second.weight))(reference, bench.context);
    error = std::max(*error, relative_error(second.y, reference.y));
  }
  const double weights = active * double(3 * hidden * width) * 2, flops = 6.0 * double(pairs * hidden * width);
  const auto time = [&](const char* what, double bytes, double operations, const std::function<void()>& run,
                        const std::string& twin = {}) {
    bench.report(fmt::format("{} T={} block {} {}", name, tokens, block_m, what), run, bytes, operations, error, twin,
                 9);
  };
  bench.report(fmt::format("{} T={} block {} align", name, tokens, block_m),
               [&] { align_kernel(align, bench.context); }, double(pairs) * 12, 0, {});
  if (gated_kernel.run != nullptr)
    time("up and activation", weights * 2 / 3, flops * 2 / 3, [&] { gated_kernel(gated, bench.context); });
  time("up", weights * 2 / 3, flops * 2 / 3, [&] { up_kernel(first, bench.context); });
  time("down", weights / 3, flops / 3, [&] { down_kernel(second, bench.context); });
  time(
      "all", weights, flops,
      [&] {
        align_kernel(align, bench.context);
        if (gated_kernel.run != nullptr) {
          gated_kernel(gated, bench.context);
        } else {
          up_kernel(first, bench.context);
          act_kernel(act, bench.context);
        }
        down_kernel(second, bench.context);
        sum_kernel(sum, bench.context);
      },
      fmt::format("experts {} {} {} {} {}", tokens, experts, top_k, hidden, width));
  bench.buffers.clear();
}

}  // namespace

void experts(Bench& bench) {
  for (int64_t tokens : {128, 4096}) routing(bench, tokens);
  for (int64_t tokens : {1, 32, 128}) experts_layer(bench, "V2-Lite", tokens, 64, 6, 2048, 1408, true);
  experts_layer(bench, "E128", 32768, 128, 8, 2048, 768, false);
  experts_layer(bench, "E128", 2048, 128, 8, 2048, 768, true);
}

}  // namespace medley::bench
