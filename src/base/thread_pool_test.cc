#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace medley {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int tasks : {0, 1, 2, 3, 17, 1000}) {
    std::vector<std::atomic<int>> runs(tasks);
    pool.parallel_for(tasks, [&](int64_t task, int worker) {
      ASSERT_GE(worker, 0);
      ASSERT_LT(worker, GetParam());
      ++runs[task];
    });
    for (auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST_P(ThreadPoolTest, ManyShortRegionsInARow) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 5000; ++round) pool.parallel_for(4, [&](int64_t task, int) { sum += task; });
  EXPECT_EQ(sum, 5000 * 6);
}

TEST_P(ThreadPoolTest, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(GetParam());
  EXPECT_THROW(pool.parallel_for(100,
                                 [](int64_t task, int) {
                                   if (task == 37) throw std::runtime_error("37");
                                 }),
               std::runtime_error);
  std::atomic<int> runs{0};
  pool.parallel_for(10, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST_P(ThreadPoolTest, ACallInsideATaskRunsInline) {
  ThreadPool pool(GetParam());
  std::atomic<int> runs{0};
  pool.parallel_for(8, [&](int64_t, int outer) {
    pool.parallel_for(8, [&](int64_t, int inner) {
      EXPECT_EQ(inner, outer);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 64);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace medley
