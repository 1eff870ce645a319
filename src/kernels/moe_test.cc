#include "kernels/moe.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

const auto& ref_of(const auto& op) {
  return *op.implementations[0];
}

// The published rules once more, with sorting and sets in double.
std::map<int32_t, double> routed(const RoutingRule& rule, const std::vector<double>& logits,
                                 const std::vector<double>& bias) {
  const size_t n = logits.size();
  std::vector<double> scores = logits;
  if (rule.score == RouterScore::softmax) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (double value : logits) total += std::exp(value - top);
    for (size_t e = 0; e < n; ++e) scores[e] = std::exp(logits[e] - top) / total;
  } else if (rule.score == RouterScore::sigmoid) {
    for (size_t e = 0; e < n; ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
  }
  std::vector<double> choice = scores;
  for (size_t e = 0; e < n && !bias.empty(); ++e) choice[e] += bias[e];
  std::set<int32_t> open;
  for (int32_t g = 0; g < rule.groups; ++g) open.insert(g);
  const int32_t size = rule.experts / rule.groups;
  if (rule.group_score != GroupScore::none) {
    std::vector<std::pair<double, int32_t>> groups;
    for (int32_t g = 0; g < rule.groups; ++g) {
      std::vector<double> part(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(part.rbegin(), part.rend());
      const double value = rule.group_score == GroupScore::top2_sum && size > 1 ? part[0] + part[1] : part[0];
      groups.emplace_back(-value, g);
    }
    std::sort(groups.begin(), groups.end());
    open.clear();
    for (int32_t i = 0; i < rule.top_groups; ++i) open.insert(groups[size_t(i)].second);
  }
  std::vector<std::pair<double, int32_t>> order;
  for (int32_t e = 0; e < rule.experts; ++e)
    if (open.count(e / size)) order.emplace_back(-choice[size_t(e)], e);
  std::sort(order.begin(), order.end());
  std::map<int32_t, double> weights;
  for (int32_t k = 0; k < rule.top_k; ++k) weights[order[size_t(k)].second] = scores[size_t(order[size_t(k)].second)];
  double total = 0;
  for (auto& [e, w] : weights) total += rule.score == RouterScore::softmax_of_chosen ? w = std::exp(w) : w;
  for (auto& [e, w] : weights) {
    if (rule.renormalize || rule.score == RouterScore::softmax_of_chosen) w /= total;
    w *= double(rule.scaling);
  }
  return weights;
}

TEST(Route, FollowsEachPublishedRule) {
  Rng rng(1);
  Machine machine(2);
  const std::vector<RoutingRule> rules = {
      {RouterScore::softmax, GroupScore::none, 8, 2, 1, 1, true, 1},              // Mixtral
      {RouterScore::softmax, GroupScore::none, 16, 2, 1, 1, false, 1},            // Jamba
      {RouterScore::softmax, GroupScore::none, 128, 8, 1, 1, true, 1},            // Qwen3-MoE
      {RouterScore::softmax, GroupScore::maximum, 160, 6, 8, 3, false, 16},       // DeepSeek-V2
      {RouterScore::sigmoid, GroupScore::top2_sum, 256, 8, 8, 4, true, 2.5},      // DeepSeek-V3
      {RouterScore::softmax_of_chosen, GroupScore::none, 32, 4, 1, 1, false, 1},  // gpt-oss
      {RouterScore::softmax, GroupScore::none, 1, 1, 1, 1, true, 1},
      {RouterScore::sigmoid, GroupScore::top2_sum, 4, 2, 4, 2, true, 1},  // groups of one expert
  };
  for (const RoutingRule& rule : rules)
    for (int64_t tokens : {0, 1, 9}) {
      SCOPED_TRACE(RouteDesc{rule}.describe());
      Tensor logits(DType::f32, {tokens, rule.experts}), bias(DType::f32, {rule.experts});
      logits.fill(rng, 2);
      bias.fill(rng, 0.1f);
      const bool biased = rule.score == RouterScore::sigmoid;
      Tensor ids(DType::i32, {tokens, rule.top_k}), weights(DType::f32, {tokens, rule.top_k});
      launch(route_op(), ref_of(route_op()), {logits, biased ? bias.as<float>() : nullptr, rule, ids, weights},
             machine.context);
      ASSERT_TRUE(weights.complete());
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<double> row, correction;
        for (int64_t e = 0; e < rule.experts; ++e) {
          row.push_back(get(logits, {t, e}));
          if (biased) correction.push_back(get(bias, {e}));
        }
        const auto want = routed(rule, row, correction);
        int64_t k = 0;
        for (const auto& [expert, weight] : want) {  // ascending ids
          ASSERT_EQ(get(ids, {t, k}), expert);
          // exp and sums of up to 256 positive terms: a unit per term at worst.
          ASSERT_NEAR(get(weights, {t, k}), weight, (double(rule.experts) + 10) * f32_unit * weight);
          ++k;
        }
      }
    }
}

TEST(Route, BreaksTiesTowardsTheLowerExpert) {
  Machine machine;
  const RoutingRule rule{RouterScore::softmax, GroupScore::none, 6, 3, 1, 1, true, 1};
  Tensor logits(DType::f32, {1, 6}), ids(DType::i32, {1, 3}), weights(DType::f32, {1, 3});
  for (int e = 0; e < 6; ++e) logits.as<float>()[e] = e == 4 ? 1.0f : 0.0f;
  launch(route_op(), ref_of(route_op()), {logits, nullptr, rule, ids, weights}, machine.context);
  EXPECT_EQ(get(ids, {0, 0}), 0);
  EXPECT_EQ(get(ids, {0, 1}), 1);
  EXPECT_EQ(get(ids, {0, 2}), 4);
}

RC_GTEST_PROP(Align, SortsEveryPairIntoBlocksOfItsSlot, ()) {
  const int32_t experts = *rc::gen::inRange(1, 12);
  const int64_t tokens = *rc::gen::inRange(0, 40);
  const int64_t top_k = *rc::gen::inRange(1, 5);
  const int64_t block_m = *rc::gen::element<int64_t>(1, 2, 4, 16, 64);
  const bool mapped = *rc::gen::arbitrary<bool>();
  const int32_t slots = mapped ? *rc::gen::inRange(1, 9) : experts;
  const auto ids = *rc::gen::container<std::vector<int32_t>>(size_t(tokens * top_k), rc::gen::inRange(0, experts));
  // Some experts are elsewhere (-1); the others get any slot.
  const auto to_slot = *rc::gen::container<std::vector<int32_t>>(size_t(experts), rc::gen::inRange(-1, slots));

  const int64_t pairs = tokens * top_k, capacity = align_capacity(pairs, slots, block_m);
  Tensor topk(DType::i32, {tokens, top_k}), sorted(DType::i32, {capacity}), blocks(DType::i32, {capacity / block_m}),
      padded(DType::i32, {1});
  std::copy(ids.begin(), ids.end(), topk.as<int32_t>());
  Machine machine;
  launch(align_op(), ref_of(align_op()),
         {topk, mapped ? to_slot.data() : nullptr, experts, slots, block_m, sorted, blocks, padded}, machine.context);

  const int64_t total = padded.as<int32_t>()[0];
  RC_ASSERT((total % block_m == 0 && total <= capacity));
  const auto slot_of = [&](int64_t pair) {
    const int32_t expert = ids[size_t(pair)];
    return mapped ? to_slot[size_t(expert)] : expert;
  };
  std::vector<int> seen(static_cast<size_t>(pairs), 0);
  for (int64_t b = 0; b < total / block_m; ++b) {
    const int32_t slot = blocks.as<int32_t>()[b];
    RC_ASSERT((slot >= 0 && slot < slots));
    RC_ASSERT((b == 0 || blocks.as<int32_t>()[b - 1] <= slot));
    RC_ASSERT(sorted.as<int32_t>()[b * block_m] < pairs);  // no block of padding only
    int64_t last = -1;
    for (int64_t i = 0; i < block_m; ++i) {
      const int64_t pair = sorted.as<int32_t>()[b * block_m + i];
      RC_ASSERT((pair >= 0 && pair <= pairs));
      RC_ASSERT((pair > last || pair == pairs));  // ascending, padding last
      last = pair;
      if (pair == pairs) continue;
      RC_ASSERT(slot_of(pair) == slot);
      ++seen[size_t(pair)];
    }
  }
  for (int64_t pair = 0; pair < pairs; ++pair) RC_ASSERT(seen[size_t(pair)] == (slot_of(pair) >= 0 ? 1 : 0));
}

TEST(WeightedSum, AddsInAscendingOrder) {
  Rng rng(3);
  Machine machine(2);
  for (const auto& kernel : runnable(weighted_sum_op(), {33}))
    for (int64_t tokens : {0, 1, 5})
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(kernel.name());
        Tensor x(DType::f32, {tokens * 3, 33}, 2), weights(DType::f32, {tokens, 3}), y(DType::f32, {tokens, 33}, 1),
            before(DType::f32, {tokens, 33});
        x.fill(rng);
        weights.fill(rng);
        Rng copy = rng;
        if (accumulate) y.fill(rng);
        before.fill(copy);
        launch(weighted_sum_op(), *kernel, {x, weights, y, accumulate}, machine.context);
        ASSERT_TRUE(y.complete());
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < 33; ++i) {
            float sum = 0;  // the order is part of the op's meaning: float, ascending, product then sum
            for (int64_t k = 0; k < 3; ++k) sum += float(get(weights, {t, k})) * float(get(x, {t * 3 + k, i}));
            const float want = accumulate ? float(get(before, {t, i})) + sum : sum;
            ASSERT_EQ(float(get(y, {t, i})), want);
          }
      }
}

}  // namespace
}  // namespace medley
