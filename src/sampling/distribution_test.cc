// A million draws each against the distribution that the definitions give, by Pearson's chi-square.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "sampling/sampler.h"

namespace medley {
namespace {

constexpr int draws = 1'000'000;

using Hits = std::vector<int64_t>;

// What varies from draw to draw: the position in one request's output, the request's seed, or its sample.
enum class Vary { position, seed, sample };

Hits draw(std::vector<float> logits, SamplingParams params, Vary vary = Vary::position) {
  ThreadPool pool(1);
  const auto vocab = int64_t(logits.size());
  HostSampler sampler(vocab, pool);
  sampler.start(0, params, {});
  const TensorView row(logits.data(), DType::f32, {1, vocab});
  const SampleRow ask{1, 0, 0};
  Hits hits(logits.size());
  for (int i = 0; i < draws; ++i) {
    if (vary == Vary::seed) params.seed = uint64_t(i);
    if (vary == Vary::sample) params.sample = i;
    if (vary != Vary::position) sampler.start(0, params, {});
    ++hits[size_t(sampler.sample(row, std::span(&ask, 1))[0].token)];
  }
  return hits;
}

// Standard deviations by which the hits are farther from `expected` than chance has them: the statistic has the mean
// `degrees` and the variance 2 * degrees. Infinite for a token that must not be drawn and was.
double excess(const Hits& hits, const std::vector<double>& expected) {
  double chi_square = 0;
  int degrees = -1;
  for (size_t token = 0; token < expected.size(); ++token) {
    if (expected[token] == 0) {
      if (hits[token] != 0) return std::numeric_limits<double>::infinity();
      continue;
    }
    const double mean = expected[token] * draws;
    EXPECT_GT(mean, 5) << "too rare for the test";
    chi_square += (double(hits[token]) - mean) * (double(hits[token]) - mean) / mean;
    ++degrees;
  }
  return (chi_square - degrees) / std::sqrt(2.0 * degrees);
}

constexpr double limit = 5;

const std::vector<double> shares = {0.05, 0.3, 0.1, 0.25, 0.02, 0.08, 0.2};

std::vector<float> logits_of(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double share : p) logits.push_back(float(std::log(share)) + 2);
  return logits;
}

SamplingParams seeded(uint64_t seed = 11) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

TEST(Distribution, PlainSampling) {
  for (const Vary vary : {Vary::position, Vary::seed, Vary::sample})
    EXPECT_LT(excess(draw(logits_of(shares), seeded(), vary), shares), limit) << int(vary);
}

// The test must see a wrong distribution: two percent more for one token, or the one below the last that may be drawn.
TEST(Distribution, TheTestCanFail) {
  const Hits hits = draw(logits_of(shares), seeded());
  std::vector<double> wrong = shares;
  wrong[1] *= 1.02;
  wrong[6] -= 0.02 * 0.3;
  EXPECT_GT(excess(hits, wrong), 2 * limit);
  wrong = shares;
  wrong[4] = 0;
  EXPECT_GT(excess(hits, wrong), 2 * limit);
  SamplingParams warmer = seeded();
  warmer.temperature = 1.02f;
  EXPECT_GT(excess(draw(logits_of(shares), warmer), shares), 2 * limit);
}

TEST(Distribution, Temperature) {
  SamplingParams params = seeded();
  params.temperature = 2;
  std::vector<double> flat;
  double sum = 0;
  for (const double share : shares) sum += std::sqrt(share);
  for (const double share : shares) flat.push_back(std::sqrt(share) / sum);
  EXPECT_LT(excess(draw(logits_of(shares), params), flat), limit);
}

TEST(Distribution, Filters) {
  const std::vector<double> three = {0, 0.3 / 0.75, 0, 0.25 / 0.75, 0, 0, 0.2 / 0.75};
  SamplingParams params = seeded();
  params.top_k = 3;
  EXPECT_LT(excess(draw(logits_of(shares), params), three), limit);
  params.top_k = 5;     // 0.3 0.25 0.2 0.1 0.08 of 0.93
  params.top_p = 0.9f;  // keeps 0.3 0.25 0.2 0.1: 0.85 / 0.93 = 0.914; min_p then drops what is under 0.4 * 0.3
  params.min_p = 0.4f;
  EXPECT_LT(excess(draw(logits_of(shares), params), three), limit);
}

TEST(Distribution, ManyTokensAndABias) {
  std::vector<double> p(500);
  double sum = 0;
  for (size_t token = 0; token < p.size(); ++token) sum += p[token] = 1.0 / double(token + 10);
  for (double& share : p) share /= sum;
  SamplingParams params = seeded(12);
  params.logit_bias = {{3, -1000.0f}, {7, float(std::log(2.0))}};
  std::vector<double> expected = p;
  expected[3] = 0;
  expected[7] *= 2;
  const double rest = 1 - p[3] + p[7];
  for (double& share : expected) share /= rest;
  ThreadPool pool(1);
  std::vector<float> logits = logits_of(p);
  for (const auto& [token, bias] : params.logit_bias) logits[size_t(token)] += bias;
  // The draw alone, a thousand times as often as the sampler would build its candidates.
  Candidates candidates;
  candidates.choose(logits, find_best(logits).logit, params);
  Hits hits(p.size());
  for (int i = 0; i < draws; ++i) ++hits[size_t(candidates.draw((i + 0.5) / draws))];
  EXPECT_LT(excess(hits, expected), 0) << "an even grid fits better than chance";
}

}  // namespace
}  // namespace medley
