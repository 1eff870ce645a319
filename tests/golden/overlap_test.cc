// A step launched before the last one's tokens are read changes no token: every family, sampled and greedy, in a small
// cache, with requests that end when the next step is already under way. (crowd_test.cc has many preemptions.)
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "golden_model.h"

namespace medley {
namespace {

std::unique_ptr<EngineCore> load(const std::filesystem::path& folder, bool overlap) {
  EngineOptions options;
  options.backend = test_backend();
  options.dtype = "bf16";
  options.threads = 2;
  options.memory = memory_for(folder, "bf16", 2, 64);
  options.reproducible = true;
  options.max_batched_tokens = 40;
  options.max_running = 6;
  options.overlap = overlap;
  return EngineCore::load(folder, options, 16);
}

struct Outcome {
  std::map<RequestId, std::vector<int32_t>> outputs;
  std::map<RequestId, std::vector<int32_t>> told;  // by on_token
  std::map<RequestId, FinishReason> reasons;
  int64_t launches_before_first_token = 0;
};

// Requests come two at a time. Number 3 ends like one with a stop string after 4 tokens, number 6 is cancelled after 5.
Outcome run(EngineCore& engine, const std::vector<Request>& requests) {
  Outcome outcome;
  int64_t launches = 0;
  StepObserver observer;
  std::vector<RequestId> to_cancel;
  observer.on_step = [&](const StepPlan&) { ++launches; };
  observer.on_token = [&](const Sampled& sampled) {
    if (outcome.launches_before_first_token == 0) outcome.launches_before_first_token = launches;
    std::vector<int32_t>& told = outcome.told[sampled.request];
    told.push_back(sampled.token);
    if (sampled.request == 6 && told.size() == 5) to_cancel.push_back(6);
    return sampled.request == 3 && told.size() == 4;
  };
  observer.on_finish = [&](const Request& request, const std::string& error) {
    EXPECT_EQ(error, "");
    outcome.outputs[request.id] = request.outputs;
    outcome.reasons[request.id] = request.finish_reason;
  };
  for (size_t next = 0; next < requests.size() || engine.has_work();) {
    for (int i = 0; i < 2 && next < requests.size(); ++i) {
      const auto refused = engine.add(requests[next++]);
      EXPECT_FALSE(refused) << *refused;
    }
    engine.step(observer);
    for (const RequestId request : std::exchange(to_cancel, {})) EXPECT_TRUE(engine.cancel(request));
  }
  EXPECT_EQ(engine.check_integrity(), "");
  for (const auto& [request, outputs] : outcome.outputs) EXPECT_EQ(outputs, outcome.told[request]) << request;
  return outcome;
}

std::vector<Request> some_requests(int64_t vocab) {
  std::mt19937 random(5);
  std::vector<Request> requests;
  for (int i = 0; i < 14; ++i) {
    std::vector<int32_t> prompt(1 + random() % 30);
    for (int32_t& id : prompt) id = int32_t(random() % uint32_t(vocab));
    Request request = greedy_request(RequestId(i + 1), prompt, i == 4 ? 1 : int32_t(8 + random() % 20));
    SamplingParams& sampling = request.sampling;
    sampling.seed = random();
    if (i % 2 == 1) sampling.temperature = 0.9f;
    if (i % 4 == 1) sampling.repetition_penalty = 1.2f, sampling.frequency_penalty = 0.1f;
    if (i % 5 == 1) sampling.top_k = 20;
    if (i % 3 == 1) sampling.top_p = 0.9f;
    if (i == 9) sampling.logprobs = 2;  // on a device the host chooses its tokens
    if (i == 10) sampling.max_tokens = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

class OverlapTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(OverlapTest, ChangesNoToken) {
  const auto plain = load(GetParam(), false), overlapped = load(GetParam(), true);
  std::vector<Request> requests = some_requests(plain->info().vocab_size);
  const Outcome first = run(*plain, requests);
  EXPECT_EQ(first.launches_before_first_token, 1);
  // Now some end at a token that nobody knew to be the last.
  for (const RequestId id : {1, 2, 8, 12})
    requests[id - 1].sampling.stop_token_ids = {first.outputs.at(id).at(first.outputs.at(id).size() / 2)};
  const Outcome expected = run(*plain, requests), got = run(*overlapped, requests);
  EXPECT_EQ(got.launches_before_first_token, 2);
  EXPECT_EQ(got.outputs, expected.outputs);
  EXPECT_EQ(got.told, expected.told);
  EXPECT_EQ(got.reasons, expected.reasons);
  EXPECT_EQ(expected.reasons.at(1), FinishReason::stop);
  EXPECT_EQ(expected.reasons.at(3), FinishReason::stop);
  EXPECT_EQ(expected.reasons.at(6), FinishReason::cancelled);
  EXPECT_EQ(expected.outputs.at(6).size(), 5u);
  EXPECT_EQ(overlapped->cache_usage().in_use_bytes, 0);
}

// The tokens of a request are the same where the host chooses them (it does for who asks for log-probabilities).
TEST_P(OverlapTest, TheHostChoosesTheSame) {
  const auto engine = load(GetParam(), true);
  std::vector<Request> requests = some_requests(engine->info().vocab_size);
  requests.erase(requests.begin() + 5), requests.erase(requests.begin() + 2);  // those that run() ends
  const Outcome on_device = run(*engine, requests);
  for (Request& request : requests) request.sampling.logprobs = 0;
  EXPECT_EQ(run(*engine, requests).outputs, on_device.outputs);
}

INSTANTIATE_TEST_SUITE_P(All, OverlapTest, testing::ValuesIn(golden_folders()), folder_name);

}  // namespace
}  // namespace medley
