#include "cache/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Extents of 1024 bytes: 4 pages of 4 tokens, or 2 states.
constexpr int64_t extent_bytes = 1024;
const std::vector<KvCacheSpec> hybrid{{CacheKind::full, "attention", 1, 4, 64},
                                      {CacheKind::window, "local", 1, 4, 64, 6},
                                      {CacheKind::state, "mamba", 3, 0, 500}};

StepPlan plan_of(std::vector<PlanRow> rows) {
  StepPlan plan;
  plan.rows = std::move(rows);
  return plan;
}

TEST(Coordinator, FillsTheTablesOfAStep) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator cache(hybrid, arena, 8);
  ASSERT_TRUE(cache.reserve(1, 9));
  ASSERT_TRUE(cache.reserve(2, 3));
  StepPlan first = plan_of({{.request = 1, .computed = 0, .new_tokens = 8}});
  cache.fill(first);
  cache.commit(1, 8);
  StepPlan second = plan_of({{.request = 1, .computed = 8, .new_tokens = 1}, {.request = 2, .new_tokens = 3}});
  cache.fill(second);
  // Extent 0: pages of attention (3 + 1), 1: pages of local (3 + 1), 2 and 3: states.
  EXPECT_THAT(second.groups[0].blocks, ElementsAre(0, 4, 8, 12));
  EXPECT_THAT(second.groups[0].block_offsets, ElementsAre(0, 3, 4));
  EXPECT_THAT(second.groups[0].state_in, IsEmpty());
  EXPECT_THAT(second.groups[1].blocks, ElementsAre(16, 20, 24, 28));
  EXPECT_THAT(second.groups[2].state_in, ElementsAre(8, -1, 10, -1, 12, -1));
  EXPECT_THAT(second.groups[2].state_out, ElementsAre(8, 14, 10, 16, 12, 18));
  cache.commit(1, 9);
  cache.commit(2, 3);
  EXPECT_EQ(cache.check_integrity(), "");
  cache.release(1);
  cache.release(2);
  cache.release(2);
  EXPECT_EQ(arena.free_extents(), 8);
  EXPECT_EQ(cache.check_integrity(), "");
}

TEST(Coordinator, SaysWhatCanFitAnEmptyCacheWithTheNumbers) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator cache(hybrid, arena, 8);
  // 2 extents of states, 1 of window pages (at most 4), so 5 of 4 pages of 4 tokens.
  EXPECT_TRUE(cache.can_ever_fit(80).fits());
  const CacheFit fit = cache.can_ever_fit(81);
  EXPECT_FALSE(fit.fits());
  EXPECT_EQ(fit.extents_needed, 9);
  EXPECT_EQ(fit.most_tokens, 80);
  EXPECT_EQ(
      fit.message,
      "81 tokens need 9 extents of 1.00 KiB (attention 6, local 1, mamba 2) but the cache has 8: at most 80 tokens "
      "fit");
  EXPECT_EQ(cache.most_requests(80), 1);
  EXPECT_EQ(cache.most_requests(16), 2);  // 3 would need 12 and 12 pages and 9 states: 11 extents
  EXPECT_TRUE(cache.reserve(1, 80));
  EXPECT_FALSE(cache.reserve(1, 81));
  EXPECT_EQ(cache.reserved(1), 80);
}

TEST(Coordinator, UsageAddsUp) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator cache(hybrid, arena, 8);
  ASSERT_TRUE(cache.reserve(1, 9));
  StepPlan plan = plan_of({{.request = 1, .computed = 0, .new_tokens = 5}});
  cache.fill(plan);
  const CacheUsage usage = cache.usage();
  EXPECT_EQ(usage.capacity_bytes, 8 * extent_bytes);
  EXPECT_EQ(usage.free_bytes, 4 * extent_bytes);
  EXPECT_EQ(usage.in_use_bytes, (2 + 2) * 256 + 3 * 512);
  EXPECT_EQ(usage.reserved_bytes, (1 + 1) * 256);
  EXPECT_EQ(usage.waste_bytes, (1 + 1) * 256 + 1 * 512);
  EXPECT_EQ(usage.groups[2].units_free, 1);
  EXPECT_EQ(usage.groups[0].name, "attention");
}

TEST(Coordinator, TruncateGoesBackWhereEveryGroupCan) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator pages({hybrid[0], hybrid[1]}, arena, 8);
  ASSERT_TRUE(pages.reserve(1, 12));
  StepPlan plan = plan_of({{.request = 1, .computed = 0, .new_tokens = 8}});
  pages.fill(plan);
  pages.commit(1, 8);
  EXPECT_EQ(pages.truncate(1, 6), 6);
  EXPECT_EQ(pages.reserved(1), 6);
  EXPECT_EQ(pages.check_integrity(), "");
  ASSERT_TRUE(pages.reserve(1, 9));
  pages.release(1);

  KvCacheCoordinator with_state(hybrid, arena, 8);
  ASSERT_TRUE(with_state.reserve(1, 8));
  plan = plan_of({{.request = 1, .computed = 0, .new_tokens = 8}});
  with_state.fill(plan);
  with_state.commit(1, 8);
  EXPECT_EQ(with_state.truncate(1, 8), 8);
  EXPECT_EQ(with_state.truncate(1, 7), 0);
  EXPECT_EQ(with_state.check_integrity(), "");
  EXPECT_EQ(arena.free_extents(), 8);
}

TEST(Coordinator, WhatWasNotReservedIsABug) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator cache(hybrid, arena, 8);
  ASSERT_TRUE(cache.reserve(1, 12));
  StepPlan too_many = plan_of({{.request = 1, .computed = 0, .new_tokens = 9}});
  EXPECT_THROW(cache.fill(too_many), std::logic_error);
  StepPlan too_far = plan_of({{.request = 1, .computed = 8, .new_tokens = 5}});
  EXPECT_THROW(cache.fill(too_far), std::logic_error);
  EXPECT_THROW(cache.commit(1, 13), std::logic_error);
}

TEST(Coordinator, IntegrityFindsAnExtentNobodyOwns) {
  Arena arena({extent_bytes, 8});
  KvCacheCoordinator cache(hybrid, arena, 8);
  ASSERT_TRUE(arena.take());
  EXPECT_THAT(cache.check_integrity(), HasSubstr("extent 0 is taken but belongs to 0 pools"));
}

// What a failed reserve must leave as it was.
struct Snapshot {
  std::vector<std::vector<int32_t>> tables;
  std::vector<int64_t> numbers;
  bool operator==(const Snapshot&) const = default;
};

Snapshot snapshot(KvCacheCoordinator& cache, const std::map<RequestId, int64_t>& computed) {
  Snapshot shot;
  for (const auto& [request, done] : computed) {
    const int64_t n = std::min<int64_t>(8, cache.reserved(request) - done);
    StepPlan plan;
    if (n > 0) plan.rows.push_back({.request = request, .computed = int32_t(done), .new_tokens = int32_t(n)});
    cache.fill(plan);
    for (const PlanGroup& group : plan.groups) {
      shot.tables.push_back(group.blocks);
      shot.tables.push_back(group.state_out);
    }
    shot.numbers.push_back(cache.reserved(request));
  }
  const CacheUsage usage = cache.usage();
  shot.numbers.insert(shot.numbers.end(), {usage.in_use_bytes, usage.reserved_bytes, usage.waste_bytes});
  for (const GroupUsage& group : usage.groups) shot.numbers.push_back(group.extents);
  return shot;
}

TEST(Coordinator, PropertyOfFailedReservations) {
  int succeeded = 0;
  int failed = 0;
  EXPECT_TRUE(rc::check("whatever extent is missing, a failed reserve leaves no trace", [&] {
    std::vector<KvCacheSpec> specs;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) specs.push_back(*rc::gen::elementOf(hybrid));
    Arena arena({extent_bytes, *rc::gen::inRange(4, 24)});
    KvCacheCoordinator cache(specs, arena, 8);
    std::map<RequestId, int64_t> computed;
    for (int step = 0; step < 25; ++step) {
      const RequestId request = *rc::gen::inRange(0, 4);
      if (*rc::gen::inRange(0, 4) == 0) {
        cache.release(request);
        computed.erase(request);
        continue;
      }
      // The injected failure: somebody else holds all but a few extents while the reserve runs.
      std::vector<int32_t> hidden;
      for (int left = *rc::gen::inRange(0, 6); arena.free_extents() > left;) hidden.push_back(*arena.take());
      const int64_t goal = computed[request] + *rc::gen::inRange(1, 30);
      if (cache.requests() < computed.size()) computed.erase(request);  // was not there yet
      const Snapshot before = snapshot(cache, computed);
      const int32_t free_before = arena.free_extents();
      const bool reserved = cache.reserve(request, goal);
      if (!reserved) {
        RC_ASSERT(snapshot(cache, computed) == before);
        RC_ASSERT(arena.free_extents() == free_before);
        RC_ASSERT(cache.requests() == computed.size());
      }
      ++(reserved ? succeeded : failed);
      for (auto extent = hidden.rbegin(); extent != hidden.rend(); ++extent) arena.give_back(*extent);
      RC_ASSERT(cache.check_integrity() == "");
      if (!reserved) continue;
      int64_t& done = computed[request];
      const int64_t n = std::min<int64_t>(*rc::gen::inRange(0, 9), cache.reserved(request) - done);
      if (n == 0) continue;
      StepPlan plan = plan_of({{.request = request, .computed = int32_t(done), .new_tokens = int32_t(n)}});
      cache.fill(plan);
      cache.commit(request, done += n);
      RC_ASSERT(cache.check_integrity() == "");
    }
    for (const auto& [request, done] : computed) cache.release(request);
    RC_ASSERT(arena.free_extents() == arena.geometry().extents);
  }));
  EXPECT_GT(succeeded, 100);
  EXPECT_GT(failed, 100);
}

}  // namespace
}  // namespace medley
