#include "kernels/moe.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/ref/scalar.h"

namespace medley::ref {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

// Indices of the `count` largest values, ties to the lower index (as torch.topk on the CPU does not promise, but a
// rule must be one); unordered.
std::vector<int32_t> largest(const std::vector<float>& values, int count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    return values[size_t(a)] != values[size_t(b)] ? values[size_t(a)] > values[size_t(b)] : a < b;
  });
  order.resize(size_t(count));
  return order;
}

void softmax(std::vector<float>& values) {
  const float highest = *std::max_element(values.begin(), values.end());
  float total = 0;
  for (float& value : values) total += value = std::exp(value - highest);
  for (float& value : values) value /= total;
}

float group_value(const RoutingRule& rule, const float* scores, int32_t size) {
  std::vector<float> sorted(scores, scores + size);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  return rule.group_score == GroupScore::top2_sum && size > 1 ? sorted[0] + sorted[1] : sorted[0];
}

void route_token(const RouteArgs& a, int64_t t) {
  const RoutingRule& rule = a.rule;
  const float* logits = a.logits.row<float>(t);
  std::vector<float> scores(logits, logits + rule.experts);
  if (rule.score == RouterScore::softmax) softmax(scores);
  if (rule.score == RouterScore::sigmoid)
    for (float& score : scores) score = 1.0f / (1.0f + std::exp(-score));

  std::vector<float> choice = scores;
  if (a.correction_bias != nullptr)
    for (int32_t e = 0; e < rule.experts; ++e) choice[size_t(e)] += a.correction_bias[e];
  if (rule.group_score != GroupScore::none && rule.top_groups < rule.groups) {
    const int32_t size = rule.experts / rule.groups;
    std::vector<float> group_scores;
    for (int32_t g = 0; g < rule.groups; ++g)
      group_scores.push_back(group_value(rule, &choice[size_t(g * size)], size));
    std::vector<bool> open(size_t(rule.groups), false);
    for (int32_t g : largest(group_scores, rule.top_groups)) open[size_t(g)] = true;
    for (int32_t e = 0; e < rule.experts; ++e)
      if (!open[size_t(e / size)]) choice[size_t(e)] = nothing;
  }

  std::vector<int32_t> chosen = largest(choice, rule.top_k);
  std::sort(chosen.begin(), chosen.end());
  std::vector<float> weights;
  for (int32_t e : chosen) weights.push_back(scores[size_t(e)]);
  if (rule.score == RouterScore::softmax_of_chosen) softmax(weights);
  float total = 1;
  if (rule.renormalize) {
    total = std::accumulate(weights.begin(), weights.end(), 0.0f);
    if (rule.score == RouterScore::sigmoid) total += rule.sum_epsilon;
  }
  for (int32_t k = 0; k < rule.top_k; ++k) {
    a.topk_ids.row<int32_t>(t)[k] = chosen[size_t(k)];
    a.topk_weights.row<float>(t)[k] = weights[size_t(k)] / total * rule.scaling;
  }
}

void run_route(const RouteArgs& a, ExecContext& context) {
  context.threads.parallel_for(a.logits.size(0), [&](int64_t t, int) { route_token(a, t); });
}

void run_align(const AlignArgs& a, ExecContext&) {
  const int32_t* ids = a.topk_ids.as<int32_t>();
  const int64_t pairs = a.topk_ids.elements();
  std::vector<int64_t> next(size_t(a.slots) + 1, 0);
  const auto slot_of = [&](int64_t pair) {
    return a.expert_to_slot != nullptr ? a.expert_to_slot[ids[pair]] : ids[pair];
  };
  for (int64_t pair = 0; pair < pairs; ++pair)
    if (const int32_t slot = slot_of(pair); slot >= 0) ++next[size_t(slot) + 1];

  int32_t* expert_ids = a.expert_ids.as<int32_t>();
  int64_t offset = 0;
  for (int32_t slot = 0; slot < a.slots; ++slot) {
    const int64_t blocks = (next[size_t(slot) + 1] + a.block_m - 1) / a.block_m;
    for (int64_t b = 0; b < blocks; ++b) expert_ids[offset / a.block_m + b] = slot;
    next[size_t(slot)] = offset;
    offset += blocks * a.block_m;
  }
  int32_t* sorted = a.sorted_token_ids.as<int32_t>();
  std::fill(sorted, sorted + offset, int32_t(pairs));
  for (int64_t pair = 0; pair < pairs; ++pair)
    if (const int32_t slot = slot_of(pair); slot >= 0) sorted[next[size_t(slot)]++] = int32_t(pair);
  *a.num_tokens_post_padded.as<int32_t>() = int32_t(offset);
}

void run_sum(const WeightedSumArgs& a, ExecContext& context) {
  const int64_t top_k = a.topk_weights.size(1), dim = a.y.size(1);
  context.threads.parallel_for(a.y.size(0), [&](int64_t t, int) {
    float* y = a.y.row<float>(t);
    const float* weights = a.topk_weights.row<float>(t);
    for (int64_t i = 0; i < dim; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < top_k; ++k) sum += weights[k] * a.x.row<float>(t * top_k + k)[i];
      y[i] = a.accumulate ? y[i] + sum : sum;
    }
  });
}

}  // namespace

extern const Implementation<RouteDesc, RouteArgs> route{"ref.route", Level::ref, any, run_route};
extern const Implementation<AlignDesc, AlignArgs> align{"ref.align", Level::ref, any, run_align};
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum{"ref.weighted_sum", Level::ref, any,
                                                                           run_sum};

}  // namespace medley::ref
