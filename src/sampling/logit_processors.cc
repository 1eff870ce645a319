#include "sampling/logit_processors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/sample.h"

namespace medley {

TokenCounts::Entry& TokenCounts::entry(int32_t token) {
  const auto [found, inserted] = index_.try_emplace(token, entries_.size());
  if (inserted) entries_.push_back({token, 0});
  return entries_[found->second];
}

bool wants_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

bool changes_logits(const SamplingParams& params) {
  return !params.logit_bias.empty() || wants_penalties(params);
}

void apply_bias_and_penalties(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits) {
  for (const auto& [token, bias] : params.logit_bias) logits[token] += bias;
  if (!wants_penalties(params)) return;
  for (const auto& [token, in_output] : counts.entries()) {
    logits[token] = sampling::penalised(logits[token], in_output, params.repetition_penalty, params.presence_penalty,
                                        params.frequency_penalty);
  }
}

Best find_best(std::span<const float> logits) {
  // Maxima of blocks in independent lanes, which the compiler turns into vectors; only the first block that holds the
  // best one is read again for its place. NaN never wins a comparison, so it is looked for beside.
  constexpr size_t lanes = 16, block = 1024;
  constexpr float lowest = -std::numeric_limits<float>::infinity(), highest = std::numeric_limits<float>::infinity();
  Best best{-1, lowest, -1};
  size_t best_block = 0;
  for (size_t begin = 0; begin < logits.size(); begin += block) {
    const size_t count = std::min(block, logits.size() - begin);
    const float* x = logits.data() + begin;
    float most[lanes];
    int32_t wrong[lanes] = {};
    std::fill_n(most, lanes, lowest);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      for (size_t lane = 0; lane < lanes; ++lane) {
        most[lane] = x[i + lane] > most[lane] ? x[i + lane] : most[lane];
        wrong[lane] |= !(x[i + lane] < highest);
      }
    }
    for (; i < count; ++i) {
      most[0] = x[i] > most[0] ? x[i] : most[0];
      wrong[0] |= !(x[i] < highest);
    }
    if (std::any_of(wrong, wrong + lanes, [](int32_t lane) { return lane != 0; })) {
      const float* at = std::find_if(x, x + count, [](float value) { return !(value < highest); });
      best.not_finite = int32_t(begin + size_t(at - x));
      return best;
    }
    const float block_best = *std::max_element(most, most + lanes);
    if (block_best > best.logit) {
      best.logit = block_best;
      best_block = begin;
      best.token = 0;
    }
  }
  if (best.token < 0) return best;
  best.token = int32_t(std::find(logits.begin() + int64_t(best_block), logits.end(), best.logit) - logits.begin());
  return best;
}

float kth_largest(std::span<const float> values, int64_t k, std::vector<float>& scratch) {
  MEDLEY_CHECK(k >= 1 && k <= int64_t(values.size()));
  // Collects what beats the k-th largest so far and prunes to k when twice that has come: one pass over the values, few
  // of which get past the comparison. On random logits ten times as fast as nth_element over a copy.
  const auto prune = [&] {
    std::nth_element(scratch.begin(), scratch.begin() + (k - 1), scratch.end(), std::greater<>());
    scratch.resize(size_t(k));
    return scratch[size_t(k - 1)];
  };
  scratch.assign(values.begin(), values.begin() + k);
  float least = prune();
  for (const float value : values.subspan(size_t(k))) {
    if (value <= least) continue;
    scratch.push_back(value);
    if (int64_t(scratch.size()) >= 2 * k) least = prune();
  }
  return prune();
}

void Candidates::fill(std::span<const float> logits, float best, float temperature, int32_t top_k) {
  float least = -std::numeric_limits<float>::infinity();
  if (top_k > 0 && top_k < int64_t(logits.size())) least = kth_largest(logits, top_k, scratch);
  tokens.clear();
  weights.clear();
  if (least == -std::numeric_limits<float>::infinity()) {
    tokens.resize(logits.size());
    weights.resize(logits.size());
    std::iota(tokens.begin(), tokens.end(), 0);
    for (size_t i = 0; i < logits.size(); ++i) weights[i] = sampling::weight_of(logits[i], best, temperature);
    return;
  }
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!(logits[token] >= least)) continue;
    tokens.push_back(int32_t(token));
    weights.push_back(sampling::weight_of(logits[token], best, temperature));
  }
}

void Candidates::choose(std::span<const float> logits, float best, const SamplingParams& params) {
  fill(logits, best, params.temperature, params.top_k);
  if (params.top_p < 1) keep_top_p(params.top_p);
  if (params.min_p > 0) keep_min_p(params.min_p);
}

uint64_t Candidates::total() const {
  uint64_t sum = 0;
  for (const float weight : weights) sum += sampling::units_of(weight);
  return sum;
}

template <class Keep>
void Candidates::keep_if(Keep keep) {
  size_t kept = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!keep(weights[i])) continue;
    tokens[kept] = tokens[i];
    weights[kept++] = weights[i];
  }
  tokens.resize(kept);
  weights.resize(kept);
}

void Candidates::keep_top_p(float top_p) {
  // Weights are not negative, so their bits are in their order. Three rounds of binning by the leading bits find the
  // exact weight of the last token that stays: in each the heaviest bins are summed until they hold enough, and the
  // next round looks into the bin that crossed the line. A weight is at most 1, so its two highest bits are 0.
  const uint64_t enough = sampling::enough_units(top_p, total());
  uint64_t above = 0;   // weight of everything heavier than the bins looked at
  uint32_t prefix = 0;  // bits of the crossing weight found so far
  int known = 30;       // bits below `known` are not decided yet
  for (const int shift : {18, 9, 0}) {
    bins.assign(size_t(1) << (known - shift), 0);
    for (const float weight : weights) {
      const uint32_t bits = std::bit_cast<uint32_t>(weight);
      if (known < 30 && (bits >> known) != (prefix >> known)) continue;
      bins[(bits >> shift) & (bins.size() - 1)] += sampling::units_of(weight);
    }
    size_t bin = bins.size();
    while (bin > 0 && above + bins[bin - 1] < enough) above += bins[--bin];
    MEDLEY_CHECK(bin > 0);  // all of them weigh enough
    prefix |= uint32_t(bin - 1) << shift;
    known = shift;
  }
  const float last = std::bit_cast<float>(prefix);
  uint64_t equals = 0;  // how many of the weight `last` have been seen, in ascending order of tokens
  keep_if([&](float weight) {
    return weight > last || (weight == last && above + equals++ * sampling::units_of(last) < enough);
  });
}

void Candidates::keep_min_p(float min_p) {
  keep_if([&](float weight) { return weight >= min_p; });  // the best token weighs 1
}

int32_t Candidates::draw(double uniform) const {
  const uint64_t sum_of_all = total();
  MEDLEY_CHECK(sum_of_all > 0);
  const uint64_t target = sampling::drawn_unit(uniform, sum_of_all);
  uint64_t sum = 0;
  size_t i = 0;
  while ((sum += sampling::units_of(weights[i])) <= target) ++i;
  return tokens[i];
}

}  // namespace medley
