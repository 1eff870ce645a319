// The filters against definitions written the slow way: full sorts, no radix, no buffers.
#include "sampling/logit_processors.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace medley {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Logits with ties (a coarse grid), masked tokens and a spread from nearly flat to nearly certain.
std::vector<float> random_logits(int seed, size_t size) {
  std::mt19937 random{unsigned(seed)};
  std::normal_distribution<float> normal;
  const float spread = std::array{0.01f, 1.0f, 10.0f, 200.0f}[size_t(seed) % 4];
  std::vector<float> logits(size);
  for (float& logit : logits) {
    logit = spread * normal(random);
    if (seed % 3 == 0) logit = std::round(logit * 4) / 4;
    if (seed % 5 == 0 && random() % 4 == 0) logit = -inf;
  }
  if (size > 0 && std::all_of(logits.begin(), logits.end(), [](float x) { return x == -inf; })) logits[size / 2] = 0;
  return logits;
}

const size_t sizes[] = {1, 2, 3, 15, 16, 17, 63, 257, 1023, 1024, 1025, 5000};

Candidates filled(const std::vector<float>& logits, float temperature = 1, int32_t top_k = 0) {
  Candidates candidates;
  candidates.fill(logits, *std::max_element(logits.begin(), logits.end()), temperature, top_k);
  return candidates;
}

std::vector<int32_t> all_tokens(size_t size) {
  std::vector<int32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TEST(FindBest, IsTheFirstMaximum) {
  for (const size_t size : sizes) {
    for (int seed = 0; seed < 30; ++seed) {
      const std::vector<float> logits = random_logits(seed, size);
      const auto expected = std::max_element(logits.begin(), logits.end());
      const Best best = find_best(logits);
      ASSERT_EQ(best.token, int32_t(expected - logits.begin())) << size << " " << seed;
      ASSERT_EQ(best.logit, *expected);
      ASSERT_EQ(best.not_finite, -1);
    }
  }
}

TEST(FindBest, NothingToFind) {
  EXPECT_EQ(find_best({}).token, -1);
  EXPECT_EQ(find_best(std::vector<float>(1500, -inf)).token, -1);
  EXPECT_EQ(find_best(std::vector<float>(1500, -inf)).not_finite, -1);
}

TEST(FindBest, ReportsTheFirstThatIsNotFinite) {
  for (const size_t size : sizes) {
    for (const float wrong : {nan, -nan, inf}) {
      for (const size_t at : {size_t(0), size / 2, size - 1}) {
        std::vector<float> logits = random_logits(1, size);
        logits[at] = wrong;
        logits.push_back(nan);
        ASSERT_EQ(find_best(logits).not_finite, int32_t(at)) << size << " " << wrong;
      }
    }
  }
}

TEST(KthLargest, IsWhatASortSays) {
  std::vector<float> scratch;
  for (const size_t size : sizes) {
    for (int seed = 0; seed < 12; ++seed) {
      std::vector<float> values = random_logits(seed, size);
      if (seed >= 8) std::sort(values.begin(), values.end());  // ascending: every value beats the ones before
      std::vector<float> sorted = values;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      for (const int64_t k : {int64_t(1), int64_t(2), int64_t(50), int64_t(size) - 1, int64_t(size)}) {
        if (k < 1 || k > int64_t(size)) continue;
        ASSERT_EQ(kth_largest(values, k, scratch), sorted[size_t(k - 1)]) << size << " " << seed << " " << k;
      }
    }
  }
}

TEST(TopK, KeepsWhatReachesTheKthAndItsEquals) {
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 1).tokens, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 2).tokens, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 3).tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 5).tokens, all_tokens(5));
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 1 << 30).tokens, all_tokens(5));
  EXPECT_EQ(filled({1, 3, 2, 3, 0}, 1, 0).tokens, all_tokens(5));
}

TEST(Weights, AreTheExponentialsOverTheTemperature) {
  for (const float temperature : {0.01f, 0.7f, 1.0f, 5.0f}) {
    const std::vector<float> logits = random_logits(2, 257);
    const Candidates candidates = filled(logits, temperature);
    const float best = *std::max_element(logits.begin(), logits.end());
    for (size_t i = 0; i < logits.size(); ++i) {
      // The argument is rounded twice (difference, quotient): relative error |argument| * epsilon, plus that of the
      // polynomial, an ulp or two. What is below a unit of the sums is 0.
      const double argument = (double(logits[i]) - best) / temperature;
      const double expected = argument < -31 ? 0 : std::exp(argument);
      ASSERT_NEAR(candidates.weights[i], expected, expected * (std::abs(argument) + 2) * 1.2e-7);
    }
  }
}

// Tokens by weight, heaviest first, the lower token first among equals; a token stays if those before it weigh less
// than top_p of all.
std::vector<int32_t> top_p_by_sorting(const Candidates& all, float top_p) {
  std::vector<size_t> order(all.tokens.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all.weights[a] > all.weights[b]; });
  long double total = 0, before = 0;
  for (const float weight : all.weights) total += weight;
  std::vector<int32_t> kept;
  for (const size_t i : order) {
    if (!(before < static_cast<long double>(top_p) * total)) break;
    kept.push_back(all.tokens[i]);
    before += all.weights[i];
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(TopP, IsWhatASortSays) {
  for (const size_t size : sizes) {
    for (int seed = 0; seed < 60; ++seed) {
      for (const float top_p : {1e-30f, 0.1f, 0.5f, 0.9f, 0.99f, 0.999999f}) {
        Candidates candidates = filled(random_logits(seed, size), 0.8f, seed % 2 ? 40 : 0);
        const std::vector<int32_t> expected = top_p_by_sorting(candidates, top_p);
        candidates.keep_top_p(top_p);
        ASSERT_EQ(candidates.tokens, expected) << size << " " << seed << " " << top_p;
        ASSERT_EQ(candidates.weights.size(), candidates.tokens.size());
      }
    }
  }
}

TEST(TopP, AmongEqualsTheLowerTokensStay) {
  for (const auto& [top_p, kept] : {std::pair{0.25f, 1u}, {0.26f, 2u}, {0.5f, 2u}, {0.75f, 3u}, {0.99f, 4u}}) {
    Candidates candidates = filled({2, 2, 2, 2});
    candidates.keep_top_p(top_p);
    EXPECT_EQ(candidates.tokens, all_tokens(kept)) << top_p;
  }
}

TEST(TopP, WeightsStayWithTheirTokens) {
  const std::vector<float> logits = random_logits(1, 1000);
  Candidates candidates = filled(logits);
  const Candidates all = candidates;
  candidates.keep_top_p(0.7f);
  ASSERT_GT(candidates.tokens.size(), 1u);
  ASSERT_LT(candidates.tokens.size(), 1000u);
  for (size_t i = 0; i < candidates.tokens.size(); ++i) {
    EXPECT_EQ(candidates.weights[i], all.weights[size_t(candidates.tokens[i])]);
  }
}

TEST(MinP, ComparesWithTheBest) {
  Candidates candidates = filled({std::log(0.5f), 0, std::log(0.1f), std::log(0.3f), -inf});
  candidates.keep_min_p(0.2f);
  EXPECT_EQ(candidates.tokens, (std::vector<int32_t>{0, 1, 3}));
  candidates.keep_min_p(1);
  EXPECT_EQ(candidates.tokens, (std::vector<int32_t>{1}));
}

TEST(Draw, FollowsTheShares) {
  Candidates candidates;
  candidates.tokens = {3, 5, 6, 9};
  candidates.weights = {0.25f, 0, 0.5f, 0.25f};
  EXPECT_EQ(candidates.draw(0), 3);
  EXPECT_EQ(candidates.draw(0.2499), 3);
  EXPECT_EQ(candidates.draw(0.25), 6);
  EXPECT_EQ(candidates.draw(0.7499), 6);
  EXPECT_EQ(candidates.draw(0.75), 9);
  EXPECT_EQ(candidates.draw(std::nextafter(1.0, 0.0)), 9);
}

TEST(Draw, NeverTakesAWeightOfZero) {
  Candidates candidates;
  candidates.tokens = {0, 1, 2};
  candidates.weights = {0, 1, 0};
  EXPECT_EQ(candidates.draw(0), 1);
  EXPECT_EQ(candidates.draw(std::nextafter(1.0, 0.0)), 1);
}

RC_GTEST_PROP(Penalties, AreWhatTheFormulaSays, (std::vector<uint8_t> prompt, std::vector<uint8_t> output)) {
  SamplingParams params;
  params.repetition_penalty = *rc::gen::element(0.5f, 1.0f, 1.3f);
  params.presence_penalty = *rc::gen::element(-1.0f, 0.0f, 0.5f);
  params.frequency_penalty = *rc::gen::element(-0.25f, 0.0f, 0.25f);
  params.logit_bias = {{3, 2.0f}, {200, -100.0f}, {3, 1.0f}};
  const std::vector<float> logits = random_logits(1, 256);

  TokenCounts counts;
  for (const uint8_t token : prompt) counts.add_prompt(token);
  for (const uint8_t token : output) counts.add_output(token);
  std::vector<float> processed = logits;
  apply_bias_and_penalties(params, counts, processed);

  for (int token = 0; token < 256; ++token) {
    const auto in_output = std::count(output.begin(), output.end(), token);
    const bool seen = in_output > 0 || std::count(prompt.begin(), prompt.end(), token) > 0;
    float expected = logits[size_t(token)];
    if (token == 3) expected = (expected + 2.0f) + 1.0f;
    if (token == 200) expected += -100.0f;
    if (seen) expected = expected > 0 ? expected / params.repetition_penalty : expected * params.repetition_penalty;
    if (in_output) expected -= params.presence_penalty + float(in_output) * params.frequency_penalty;
    RC_ASSERT(processed[size_t(token)] == expected);
  }
}

}  // namespace
}  // namespace medley
