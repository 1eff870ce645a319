// A running engine takes no memory: after one round of work the same round allocates nothing, on the host and on a
// device. (Buffers only: tables of the scheduler and small vectors are the host's.) Nor does the host wait for the
// device but for the tokens of each step.
#include <gtest/gtest.h>

#include "golden_model.h"

namespace medley {
namespace {

class SteadyTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(SteadyTest, ASecondRoundAllocatesNothing) {
  EngineOptions options;
  options.backend = test_backend();
  options.dtype = "bf16";
  options.threads = 2;
  options.memory = size_t(8) << 20;
  const auto engine = EngineCore::load(GetParam(), options, 7);
  int64_t steps = 0;
  const auto round = [&] {
    std::vector<Request> requests;
    for (int i = 0; i < 5; ++i)
      requests.push_back(greedy_request(RequestId(i + 1), std::vector<int32_t>(size_t(1 + 6 * i), 3), 4 + 3 * i));
    requests[1].sampling.temperature = requests[2].sampling.temperature = 1;
    requests[2].sampling.top_p = 0.9f;
    requests[3].sampling.repetition_penalty = 1.1f;
    requests[4].sampling.logit_bias = {{3, 1.0f}};
    return run_requests(*engine, requests, &steps);
  };
  const auto first = round();
  EXPECT_EQ(round(), first);
  const int64_t allocated = allocations(), waited = device_waits();
  steps = 0;
  EXPECT_EQ(round(), first);
  EXPECT_EQ(allocations() - allocated, 0);
  EXPECT_LE(device_waits() - waited, steps);
}

INSTANTIATE_TEST_SUITE_P(All, SteadyTest, testing::ValuesIn(golden_folders()), folder_name);

}  // namespace
}  // namespace medley
