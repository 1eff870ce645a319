// The sampler against plain definitions in numpy, on hundreds of random settings (tools/make_sampling_cases.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "sampling/sampler.h"

namespace medley {
namespace {

using json = nlohmann::json;
using Ids = std::vector<int32_t>;

const json& fixture() {
  static const json cases = json::parse(std::ifstream(std::string(MEDLEY_SOURCE_DIR) + "/tests/sampling/cases.json"));
  return cases;
}

std::vector<float> logits_of(const json& test) {
  std::vector<float> logits;
  for (const json& value : fixture()["logits"][test["row"].get<size_t>()])
    logits.push_back(value.is_string() ? -std::numeric_limits<float>::infinity() : value.get<float>());
  return logits;
}

SamplingParams params_of(const json& test) {
  const json& given = test["params"];
  SamplingParams params;
  params.temperature = given.value("temperature", 1.0f);
  params.top_k = given.value("top_k", 0);
  params.top_p = given.value("top_p", 1.0f);
  params.min_p = given.value("min_p", 0.0f);
  params.repetition_penalty = given.value("repetition_penalty", 1.0f);
  params.presence_penalty = given.value("presence_penalty", 0.0f);
  params.frequency_penalty = given.value("frequency_penalty", 0.0f);
  if (given.contains("logit_bias")) params.logit_bias = given["logit_bias"].get<decltype(params.logit_bias)>();
  if (given.contains("logprobs")) params.logprobs = given["logprobs"].get<int32_t>();
  return params;
}

// Weights are float32 exponentials of down to log(1e-12) = -28, whose argument has a few roundings: 100 epsilons cover
// it. Sums are in double.
constexpr double relative = 100 * 6e-8;

TEST(SamplingCases, WhatMayBeDrawnAndHowLikely) {
  for (const json& test : fixture()["cases"]) {
    const SamplingParams params = params_of(test);
    if (params.temperature == 0) continue;
    std::vector<float> logits = logits_of(test);
    TokenCounts counts;
    if (params.repetition_penalty != 1)
      for (const int32_t token : test["prompt"].get<Ids>()) counts.add_prompt(token);
    for (const int32_t token : test["output"].get<Ids>()) counts.add_output(token);
    apply_bias_and_penalties(params, counts, logits);
    Candidates candidates;
    candidates.choose(logits, find_best(logits).logit, params);
    double sum = 0;
    for (const float weight : candidates.weights) sum += weight;
    Ids kept;
    std::vector<double> probs;
    for (size_t i = 0; i < candidates.tokens.size(); ++i) {
      const double prob = candidates.weights[i] / sum;
      if (prob < 1e-12) continue;  // the fixture leaves it out
      kept.push_back(candidates.tokens[i]);
      probs.push_back(prob);
    }
    ASSERT_EQ(kept, test["kept"].get<Ids>()) << test.dump();
    for (size_t i = 0; i < kept.size(); ++i) {
      const double expected = test["probs"][i];
      ASSERT_NEAR(probs[i], expected, relative * expected) << test.dump();
    }
  }
}

TEST(SamplingCases, TokensAndLogprobs) {
  ThreadPool pool(1);
  for (const json& test : fixture()["cases"]) {
    std::vector<float> logits = logits_of(test);
    SamplingParams params = params_of(test);
    HostSampler sampler(int64_t(logits.size()), pool);
    for (size_t i = 0; i < test["draws"].size(); ++i) {
      const json& draw = test["draws"][i];
      params.seed = draw[0].get<uint64_t>();
      params.sample = draw[1].get<int32_t>();
      sampler.start(0, params, test["prompt"].get<Ids>(), test["output"].get<Ids>());
      const SampleRow row{1, 0, 0};
      const TensorView view(logits.data(), DType::f32, {1, int64_t(logits.size())});
      const Sampled sampled = sampler.sample(view, std::span(&row, 1))[0];
      ASSERT_EQ(sampled.error, "");
      ASSERT_EQ(sampled.token, draw[2].get<int32_t>()) << test.dump();
      if (!params.logprobs) continue;
      // One rounding of the result to float32, on top of float32 exponentials that are at most 1.
      const auto near = [](double value) { return testing::DoubleNear(value, 2e-7 * (1 + std::abs(value))); };
      ASSERT_THAT(double(sampled.logprob), near(test["chosen"][i])) << test.dump();
      ASSERT_EQ(sampled.top.size(), test["top"].size());
      for (size_t k = 0; k < sampled.top.size(); ++k) {
        ASSERT_EQ(sampled.top[k].token, test["top"][k][0].get<int32_t>()) << test.dump();
        ASSERT_THAT(double(sampled.top[k].logprob), near(test["top"][k][1])) << test.dump();
      }
    }
  }
}

}  // namespace
}  // namespace medley
