#include "medley/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace medley {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

TEST(SamplingParams, TheDefaultsAreFine) {
  EXPECT_EQ(SamplingParams{}.problem(100), "");
}

TEST(SamplingParams, TheEdgesAreFine) {
  SamplingParams params;
  params.temperature = 0;
  params.top_k = 1 << 30;
  params.top_p = std::numeric_limits<float>::denorm_min();
  params.min_p = 1;
  params.repetition_penalty = 0.01f;
  params.presence_penalty = -100;
  params.logit_bias = {{0, -100.0f}, {99, 100.0f}};
  params.stop = {"x"};
  params.stop_token_ids = {99};
  params.logprobs = 100;
  params.n = 1024;
  params.sample = 1 << 30;
  EXPECT_EQ(params.problem(100), "");
}

TEST(SamplingParams, AWrongValueIsNamed) {
  const std::pair<const char*, std::function<void(SamplingParams&)>> cases[] = {
      {"temperature is -1", [](auto& p) { p.temperature = -1; }},
      {"temperature is nan", [](auto& p) { p.temperature = nan; }},
      {"temperature is inf", [](auto& p) { p.temperature = inf; }},
      {"top_k is -1", [](auto& p) { p.top_k = -1; }},
      {"top_p is 0", [](auto& p) { p.top_p = 0; }},
      {"top_p is 1.5", [](auto& p) { p.top_p = 1.5; }},
      {"top_p is nan", [](auto& p) { p.top_p = nan; }},
      {"min_p is -0.5", [](auto& p) { p.min_p = -0.5; }},
      {"min_p is 2", [](auto& p) { p.min_p = 2; }},
      {"repetition_penalty is 0", [](auto& p) { p.repetition_penalty = 0; }},
      {"repetition_penalty is inf", [](auto& p) { p.repetition_penalty = inf; }},
      {"presence_penalty is nan", [](auto& p) { p.presence_penalty = nan; }},
      {"frequency_penalty is inf", [](auto& p) { p.frequency_penalty = inf; }},
      {"token 100",
       [](auto& p) {
         p.logit_bias = {{100, 1.0f}};
       }},
      {"token -1",
       [](auto& p) {
         p.logit_bias = {{-1, 1.0f}};
       }},
      {"token 7 is nan",
       [](auto& p) {
         p.logit_bias = {{7, nan}};
       }},
      {"n is 0", [](auto& p) { p.n = 0; }},
      {"n is 1025", [](auto& p) { p.n = 1025; }},
      {"sample is -1", [](auto& p) { p.sample = -1; }},
      {"max_tokens is -1", [](auto& p) { p.max_tokens = -1; }},
      {"stop holds an empty text",
       [](auto& p) {
         p.stop = {"a", ""};
       }},
      {"stop_token_ids names token 100", [](auto& p) { p.stop_token_ids = {100}; }},
      {"logprobs is 101", [](auto& p) { p.logprobs = 101; }},
      {"logprobs is -1", [](auto& p) { p.logprobs = -1; }},
  };
  for (const auto& [message, change] : cases) {
    SamplingParams params;
    change(params);
    EXPECT_THAT(params.problem(100), testing::HasSubstr(message));
  }
}

}  // namespace
}  // namespace medley
