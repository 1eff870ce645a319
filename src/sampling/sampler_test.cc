#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "sampling/philox.h"

namespace medley {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(unsigned seed, int64_t count) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<size_t>(count));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TensorView rows_of(std::vector<float>& logits, int64_t vocab) {
  return {logits.data(), DType::f32, {int64_t(logits.size()) / vocab, vocab}};
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// The next token of one request with these logits.
Sampled sample_one(std::vector<float> logits, const SamplingParams& params, const std::vector<int32_t>& prompt = {},
                   const std::vector<int32_t>& output = {}) {
  ThreadPool pool(1);
  HostSampler sampler(int64_t(logits.size()), pool);
  sampler.start(0, params, prompt, output);
  const SampleRow row{42, 0, 0};
  return sampler.sample(rows_of(logits, int64_t(logits.size())), std::span(&row, 1))[0];
}

TEST(Sampler, GreedyTakesTheBestAndTheLowestOfEquals) {
  EXPECT_EQ(sample_one({0, 5, 1, 5}, greedy()).token, 1);
  EXPECT_EQ(sample_one({-inf, -inf, -7}, greedy()).token, 2);
  EXPECT_EQ(sample_one({3}, greedy()).token, 0);
  EXPECT_EQ(sample_one({0, 5, 1, 5}, greedy()).request, 42u);
}

TEST(Sampler, AVanishingTemperatureIsGreedyAndDoesNotOverflow) {
  SamplingParams params;
  for (const float temperature : {std::numeric_limits<float>::denorm_min(), 1e-30f, 1e-4f}) {
    params.temperature = temperature;
    EXPECT_EQ(sample_one({-3e38f, 0, 3e38f, 1}, params).token, 2);
    EXPECT_EQ(sample_one({0, 5, 1, -inf}, params).token, 1);
  }
}

TEST(Sampler, AHugeTemperatureIsUniformOverWhatIsNotMasked) {
  SamplingParams params;
  params.temperature = 3e38f;
  std::vector<int> hits(4);
  for (params.seed = 0; params.seed < 400; ++params.seed) ++hits[size_t(sample_one({9, -9, -inf, 0}, params).token)];
  EXPECT_EQ(hits[2], 0);
  for (const int token : {0, 1, 3}) EXPECT_NEAR(hits[size_t(token)], 133, 50);  // five standard deviations
}

TEST(Sampler, FiltersThatLeaveOneTokenAreGreedy) {
  SamplingParams one_k, one_p, one_min;
  one_k.top_k = 1;
  one_p.top_p = 1e-6f;
  one_min.min_p = 1;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<float> logits = random_logits(seed, 100);
    const int32_t best = int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
    for (SamplingParams params : {one_k, one_p, one_min}) {
      params.seed = seed;
      EXPECT_EQ(sample_one(logits, params).token, best);
    }
  }
}

TEST(Sampler, DifferentSeedsAndPositionsDiffer) {
  const std::vector<float> flat(1000, 0.0f);
  SamplingParams params;
  std::vector<int32_t> by_seed, by_position;
  for (int i = 0; i < 20; ++i) {
    params.seed = uint64_t(i);
    by_seed.push_back(sample_one(flat, params).token);
    params.seed = 0;
    by_position.push_back(sample_one(flat, params, {}, std::vector<int32_t>(size_t(i), 7)).token);
  }
  for (auto* tokens : {&by_seed, &by_position}) {
    std::sort(tokens->begin(), tokens->end());
    EXPECT_GT(std::unique(tokens->begin(), tokens->end()) - tokens->begin(), 15);
  }
}

TEST(Sampler, TheDrawIsTheDocumentedNumber) {
  SamplingParams params;
  params.seed = 1234567890123456789u;
  const std::vector<int32_t> output(5, 0);
  const double uniform = philox_uniform(params.seed, 5);
  EXPECT_EQ(sample_one(std::vector<float>(4096, 1.0f), params, {}, output).token, int32_t(uniform * 4096));
}

// What rule 1 of the design asks of the sampler: a request's tokens are the same alone and in any company, on any
// number of threads, in any order of rows, and when it was taken out and resumed in another slot.
TEST(Sampler, CompanyThreadsAndResumingDoNotMatter) {
  constexpr int64_t vocab = 1500;
  constexpr int requests = 12, steps = 10;
  const auto logits_of = [](int request, int step) { return random_logits(unsigned(100 * request + step), vocab); };
  const auto params_of = [](int request) {
    SamplingParams params;
    params.seed = uint64_t(request % 3);
    params.temperature = request % 4 == 0 ? 0.0f : 0.5f + 0.25f * float(request % 5);
    params.top_k = request % 2 ? 0 : 50;
    params.top_p = request % 3 ? 0.9f : 1.0f;
    params.min_p = request % 5 == 1 ? 0.05f : 0.0f;
    params.repetition_penalty = request % 3 == 1 ? 1.2f : 1.0f;
    params.frequency_penalty = request % 4 == 3 ? 0.3f : 0.0f;
    if (request % 2) params.logprobs = 3;
    return params;
  };
  const std::vector<int32_t> prompt = {1, 2, 3, 2};

  std::vector<std::vector<Sampled>> alone(requests);
  for (int request = 0; request < requests; ++request) {
    ThreadPool pool(1);
    HostSampler sampler(vocab, pool);
    sampler.start(3, params_of(request), prompt);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> logits = logits_of(request, step);
      const SampleRow row{RequestId(request), 3, 0};
      alone[size_t(request)].push_back(sampler.sample(rows_of(logits, vocab), std::span(&row, 1))[0]);
    }
  }

  for (const int threads : {1, 2, 3, 4}) {
    ThreadPool pool(threads);
    HostSampler sampler(vocab, pool);
    std::mt19937 random{unsigned(threads)};
    std::vector<int32_t> slot(requests);
    std::vector<std::vector<int32_t>> output(requests);
    for (int request = 0; request < requests; ++request) {
      slot[size_t(request)] = request;
      sampler.start(request, params_of(request), prompt);
    }
    for (int step = 0; step < steps; ++step) {
      if (step == 4) {  // everyone out, and back in other slots
        for (int request = 0; request < requests; ++request) sampler.finish(slot[size_t(request)]);
        for (int request = 0; request < requests; ++request) {
          slot[size_t(request)] = 2 * requests - request;
          sampler.start(slot[size_t(request)], params_of(request), prompt, output[size_t(request)]);
        }
      }
      std::vector<SampleRow> rows;
      for (int request = 0; request < requests; ++request) {
        rows.push_back({RequestId(request), slot[size_t(request)], 0});
      }
      std::shuffle(rows.begin(), rows.end(), random);
      std::vector<float> logits;
      for (SampleRow& row : rows) {
        row.logits_row = int64_t(logits.size()) / vocab + 1;
        logits.resize(logits.size() + vocab, nan);  // a row that nobody samples
        const std::vector<float> own = logits_of(int(row.request), step);
        logits.insert(logits.end(), own.begin(), own.end());
      }
      for (const Sampled& sampled : sampler.sample(rows_of(logits, vocab), rows)) {
        const Sampled& expected = alone[sampled.request][size_t(step)];
        ASSERT_EQ(sampled.token, expected.token) << threads << " threads, request " << sampled.request;
        ASSERT_EQ(sampled.logprob, expected.logprob);
        ASSERT_EQ(sampled.top.size(), expected.top.size());
        for (size_t i = 0; i < sampled.top.size(); ++i) {
          ASSERT_EQ(sampled.top[i].token, expected.top[i].token);
          ASSERT_EQ(sampled.top[i].logprob, expected.top[i].logprob);
        }
        output[sampled.request].push_back(sampled.token);
      }
    }
  }
}

TEST(Sampler, PenaltiesSeeWhatWasJustWritten) {
  SamplingParams params = greedy();
  params.presence_penalty = 1;
  ThreadPool pool(1);
  HostSampler sampler(4, pool);
  sampler.start(0, params, {});
  std::vector<float> logits = {0, 3, 2.5f, 2.25f};
  const SampleRow row{1, 0, 0};
  std::vector<int32_t> tokens;
  for (int i = 0; i < 4; ++i) tokens.push_back(sampler.sample(rows_of(logits, 4), std::span(&row, 1))[0].token);
  EXPECT_THAT(tokens, testing::ElementsAre(1, 2, 3, 1));  // 3, 2.5, 2.25, then 2 again
  EXPECT_THAT(logits, testing::ElementsAre(0, 3, 2.5f, 2.25f));
}

TEST(Sampler, TheRepetitionPenaltySeesThePromptTheOthersDoNot) {
  SamplingParams repetition = greedy(), presence = greedy();
  repetition.repetition_penalty = 2;
  presence.presence_penalty = 5;
  EXPECT_EQ(sample_one({3, 2}, repetition, {0}).token, 1);
  EXPECT_EQ(sample_one({-1, -1.5f}, repetition, {0}).token, 1);
  EXPECT_EQ(sample_one({3, 2}, presence, {0}).token, 0);
  EXPECT_EQ(sample_one({3, 2}, presence, {}, {0}).token, 1);
}

TEST(Sampler, ABiasForbidsOrForces) {
  SamplingParams params = greedy();
  params.logit_bias = {{1, -100.0f}};
  EXPECT_EQ(sample_one({0, 5, 1}, params).token, 2);
  params.logit_bias = {{0, 100.0f}};
  EXPECT_EQ(sample_one({0, 5, 1}, params).token, 0);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  SamplingParams params = greedy();
  params.logit_bias = {{3, 50.0f}};  // chosen against the model
  params.logprobs = 3;
  const std::vector<float> logits = {std::log(0.1f), std::log(0.4f), std::log(0.1f), std::log(0.05f), std::log(0.35f)};
  const Sampled sampled = sample_one(logits, params);
  EXPECT_EQ(sampled.token, 3);
  EXPECT_NEAR(sampled.logprob, std::log(0.05), 1e-6);
  ASSERT_EQ(sampled.top.size(), 3u);
  EXPECT_EQ(sampled.top[0].token, 1);
  EXPECT_EQ(sampled.top[1].token, 4);
  EXPECT_EQ(sampled.top[2].token, 0);  // as likely as token 2, and lower
  EXPECT_NEAR(sampled.top[0].logprob, std::log(0.4), 1e-6);
  EXPECT_NEAR(sampled.top[2].logprob, std::log(0.1), 1e-6);

  params.logprobs = 0;
  EXPECT_NEAR(sample_one(logits, params).logprob, std::log(0.05), 1e-6);
  EXPECT_TRUE(sample_one(logits, params).top.empty());
  params.logprobs = 5;
  EXPECT_EQ(sample_one(logits, params).top.size(), 5u);
}

TEST(Sampler, LogprobsOfAWideRowSumToOne) {
  std::vector<float> scratch;
  const std::vector<float> logits = random_logits(5, 10000);
  const double norm = log_sum_exp(logits, *std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  float before = 1;
  for (const auto& [token, logprob] : top_logprobs(logits, norm, 10000, scratch)) {
    EXPECT_LE(logprob, before);
    before = logprob;
    sum += std::exp(double(logprob));
  }
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(Sampler, LogitsThatAreNotFiniteEndTheirRequestOnly) {
  ThreadPool pool(2);
  HostSampler sampler(3, pool);
  for (int slot = 0; slot < 4; ++slot) sampler.start(slot, greedy(), {});
  std::vector<float> logits = {0, nan, 1, 0, 2, 1, inf, 0, 0, -inf, -inf, -inf};
  const std::vector<SampleRow> rows = {{10, 0, 0}, {11, 1, 1}, {12, 2, 2}, {13, 3, 3}};
  const std::vector<Sampled> sampled = sampler.sample(rows_of(logits, 3), rows);
  EXPECT_THAT(sampled[0].error, testing::HasSubstr("output token 0 cannot be sampled: token 1 has nan"));
  EXPECT_EQ(sampled[1].error, "");
  EXPECT_EQ(sampled[1].token, 1);
  EXPECT_THAT(sampled[2].error, testing::HasSubstr("token 0 has inf"));
  EXPECT_THAT(sampled[3].error, testing::HasSubstr("all are -inf"));
}

TEST(Sampler, APenaltyThatOverflowsIsAnErrorToo) {
  SamplingParams params = greedy();
  params.repetition_penalty = 1e-30f;
  EXPECT_THAT(sample_one({1e20f, 0}, params, {0}).error, testing::HasSubstr("after bias and penalties"));
}

TEST(Sampler, NoRowsIsFine) {
  ThreadPool pool(2);
  HostSampler sampler(8, pool);
  std::vector<float> none;
  EXPECT_TRUE(sampler.sample(TensorView(none.data(), DType::f32, {0, 8}), {}).empty());
}

}  // namespace
}  // namespace medley
