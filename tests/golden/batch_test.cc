// Rule 1: a request's logits are the same bits alone or in any company, on 1 to 4 threads, family by family; with
// --reproducible in any chunking and after preemptions too.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "golden_model.h"

namespace medley {
namespace {

struct Trace {
  std::vector<std::vector<int32_t>> tokens;                   // by request
  std::vector<std::map<int64_t, std::vector<float>>> logits;  // by request: position -> logits
};

struct Load {
  int threads = 1;
  bool reproducible = false;
  int64_t chunk = 0;
  int64_t max_batched_tokens = 512;
  size_t memory = size_t(8) << 20;
  std::string dtype = "f32";
  bool graphs = true;
};

std::unique_ptr<EngineCore> load(const std::filesystem::path& folder, const Load& how) {
  EngineOptions options;
  options.backend = test_backend();
  options.dtype = how.dtype;
  options.threads = how.threads;
  options.memory = how.memory;
  options.reproducible = how.reproducible;
  options.max_batched_tokens = how.max_batched_tokens;
  options.graphs = how.graphs;
  return EngineCore::load(folder, options, how.chunk);
}

// Random prompts and lengths, sampled (not greedy), so that a wrong bit soon shows in the tokens too.
std::vector<Request> random_requests(uint32_t seed, int count, int64_t vocab) {
  std::mt19937 random(seed);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    std::vector<int32_t> prompt(1 + random() % 45);
    for (int32_t& id : prompt) id = int32_t(random() % uint32_t(vocab));
    Request request = greedy_request(RequestId(i + 1), prompt, int32_t(1 + random() % 12));
    request.sampling.temperature = i % 3 == 0 ? 0.0f : 0.8f;
    request.sampling.seed = uint64_t(i);
    request.logits = LogitsWanted::all;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Requests arrive `per_step` at a time, so that prefills and decodes mix. Positions computed again after a preemption
// must give the same logits again.
Trace run(EngineCore& engine, const std::vector<Request>& requests, size_t per_step) {
  Trace result;
  result.tokens.resize(requests.size());
  result.logits.resize(requests.size());
  StepObserver observer;
  observer.on_logits = [&](const StepPlan&, const StepLogits& step) {
    for (const RowLogits& row : step.rows)
      for (int64_t i = 0; i < row.count; ++i) {
        const float* logits = step.logits.row<float>(row.first + i);
        std::vector<float> values(logits, logits + step.logits.size(1));
        auto& seen = result.logits[row.request - 1];
        const auto [at, fresh] = seen.emplace(row.position + i, values);
        if (!fresh) {
          EXPECT_EQ(std::memcmp(at->second.data(), values.data(), values.size() * 4), 0) << "computed again";
        }
      }
  };
  observer.on_finish = [&](const Request& request, const std::string& error) {
    EXPECT_EQ(error, "");
    result.tokens[request.id - 1] = request.outputs;
  };
  for (size_t next = 0; next < requests.size() || engine.has_work();) {
    for (size_t i = 0; i < per_step && next < requests.size(); ++i) {
      const auto refused = engine.add(requests[next++]);
      EXPECT_FALSE(refused) << *refused;
    }
    engine.step(observer);
  }
  EXPECT_EQ(engine.check_integrity(), "");
  return result;
}

Trace run_alone(EngineCore& engine, const std::vector<Request>& requests) {
  Trace result;
  for (Request request : requests) {
    request.id = 1;
    Trace one = run(engine, {request}, 1);
    result.tokens.push_back(std::move(one.tokens[0]));
    result.logits.push_back(std::move(one.logits[0]));
  }
  return result;
}

void expect_same_bits(const Trace& got, const Trace& expected, const std::string& where) {
  ASSERT_EQ(got.tokens, expected.tokens) << where;
  for (size_t r = 0; r < expected.logits.size(); ++r) {
    ASSERT_EQ(got.logits[r].size(), expected.logits[r].size()) << where << ", request " << r;
    for (const auto& [position, logits] : expected.logits[r])
      ASSERT_EQ(std::memcmp(got.logits[r].at(position).data(), logits.data(), logits.size() * 4), 0)
          << where << ", request " << r << ", position " << position;
  }
}

class BatchTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(BatchTest, AloneOrTogetherOnAnyNumberOfThreads) {
  for (const char* dtype : {"f32", "bf16"}) {
    const auto alone = load(GetParam(), {.dtype = dtype, .graphs = false});
    const auto requests = random_requests(17, 8, alone->info().vocab_size);
    const Trace expected = run_alone(*alone, requests);
    for (int threads = 1; threads <= 4; ++threads)
      expect_same_bits(run(*load(GetParam(), {.threads = threads, .dtype = dtype}), requests, size_t(threads)),
                       expected, fmt::format("{}, {} threads", dtype, threads));
  }
}

TEST_P(BatchTest, ReproducibleInAnyChunkingAndAfterPreemptions) {
  for (const char* dtype : {"f32", "bf16"}) {
    const auto alone = load(GetParam(), {.reproducible = true, .dtype = dtype});
    const auto requests = random_requests(23, 8, alone->info().vocab_size);
    const Trace expected = run_alone(*alone, requests);
    for (const int64_t chunk : {1, 7})
      expect_same_bits(
          run(*load(GetParam(), {.threads = 2, .reproducible = true, .chunk = chunk, .dtype = dtype}), requests, 3),
          expected, fmt::format("{}, chunk {}", dtype, chunk));
    // A step's budget below the prompts, and a cache that holds few of the requests at a time.
    const auto tight = load(GetParam(), {.threads = 2,
                                         .reproducible = true,
                                         .max_batched_tokens = 16,
                                         .memory = memory_for(GetParam(), dtype, 3, 64),
                                         .dtype = dtype});
    expect_same_bits(run(*tight, requests, 8), expected, fmt::format("{}, tight", dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(All, BatchTest, testing::ValuesIn(golden_folders()), folder_name);

}  // namespace
}  // namespace medley
