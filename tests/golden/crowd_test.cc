// A crowd in a small cache: 64 requests over demo-jamba, pages and states from one arena that holds a tenth of them.
// With --reproducible everybody finishes, preempted or not, with the tokens they get alone.
#include <gtest/gtest.h>

#include <random>

#include "golden_model.h"

namespace medley {
namespace {

std::unique_ptr<EngineCore> load(size_t memory, int64_t max_batched_tokens, bool overlap = false) {
  EngineOptions options;
  options.backend = test_backend();
  options.dtype = "bf16";
  options.threads = 2;
  options.memory = memory;
  options.reproducible = true;
  options.max_batched_tokens = max_batched_tokens;
  options.overlap = overlap;
  return EngineCore::load(std::filesystem::path(MEDLEY_SOURCE_DIR) / "models/demo-jamba", options);
}

void expect_what_they_get_alone(bool overlap) {
  const std::filesystem::path model = std::filesystem::path(MEDLEY_SOURCE_DIR) / "models/demo-jamba";
  const size_t small = memory_for(model, "bf16", 5, 40);
  const auto crowd = load(small, 96, overlap);
  const auto alone = load(memory_for(model, "bf16", 2, 400), 512);
  std::mt19937 random(64);
  std::vector<Request> requests;
  for (int i = 0; i < 64; ++i) {
    std::vector<int32_t> prompt(1 + random() % 30);
    for (int32_t& id : prompt) id = int32_t(random() % uint32_t(crowd->info().vocab_size));
    Request request = greedy_request(RequestId(i + 1), prompt, int32_t(1 + random() % 60));
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    request.sampling.repetition_penalty = i % 4 == 1 ? 1.2f : 1.0f;
    request.sampling.seed = random();
    requests.push_back(request);
  }
  const auto together = run_requests(*crowd, requests);
  EXPECT_EQ(crowd->check_integrity(), "");
  EXPECT_GT(crowd->scheduler().preemptions(), 0) << "the cache is not small enough to prove anything";
  EXPECT_EQ(crowd->cache_usage().in_use_bytes, 0);
  ASSERT_EQ(together.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(together[i], run_requests(*alone, {requests[i]}).at(0)) << "request " << i;
}

TEST(Crowd, SixtyFourRequestsInASmallCacheGetWhatTheyGetAlone) {
  expect_what_they_get_alone(false);
}

TEST(Crowd, AlsoWhenStepsOverlap) {
  expect_what_they_get_alone(true);
}

// A request that can never fit is refused with the numbers, and harms nobody.
TEST(Crowd, WhatCannotFitIsRefusedWithTheNumbers) {
  const std::filesystem::path model = std::filesystem::path(MEDLEY_SOURCE_DIR) / "models/demo-jamba";
  const auto engine = load(memory_for(model, "bf16", 2, 128), 512);
  const auto refused = engine->add(greedy_request(1, std::vector<int32_t>(300, 5), 600));
  ASSERT_TRUE(refused);
  EXPECT_NE(refused->find("300 tokens plus max_tokens 600 cannot fit"), std::string::npos) << *refused;
  EXPECT_EQ(run_requests(*engine, {greedy_request(2, {5, 6, 7}, 4)}).at(0).size(), 4u);
}

}  // namespace
}  // namespace medley
