#include "cache/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/error.h"

namespace medley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

KvCacheSpec paged(int32_t layers, int32_t block, int64_t row) {
  return {CacheKind::full, "attention", layers, block, row};
}

KvCacheSpec state(int32_t layers, int64_t bytes) {
  return {CacheKind::state, "mamba", layers, 0, bytes};
}

TEST(PlanArena, OneGroupHasOneUnitPerExtent) {
  const ArenaGeometry geometry = plan_arena(1 << 20, {paged(2, 16, 96)});
  EXPECT_EQ(geometry.extent_bytes, 2 * 16 * 96);
  EXPECT_EQ(geometry.extents, (1 << 20) / (2 * 16 * 96));
}

TEST(PlanArena, UnitsThatDivideEachOtherShareTheLargest) {
  EXPECT_EQ(plan_arena(1 << 20, {paged(1, 16, 64), state(3, 4096)}).extent_bytes, 4096);
}

TEST(PlanArena, AStateIsRoundedUpToItsGranule) {
  EXPECT_EQ(stored_unit_bytes(state(3, 257)), 512);
  EXPECT_EQ(plan_arena(1 << 20, {state(3, 257)}).extent_bytes, 512);
}

TEST(PlanArena, UnequalUnitsGetTheSmallestExtentWithSmallTails) {
  // 3 x 1280 = 3840 leaves 3840 % 1024 = 768 (20 %); 5 x 1024 = 4 x 1280 = 5120 is the first without a large tail.
  EXPECT_EQ(plan_arena(1 << 24, {paged(1, 4, 256), state(1, 1280)}).extent_bytes, 5120);
}

TEST(PlanArena, ASmallArenaKeepsManyExtents) {
  // bytes / 64 = 2048 allows one state of 1280 only, whatever its tail for the pages.
  EXPECT_EQ(plan_arena(1 << 17, {paged(1, 4, 256), state(1, 1280)}).extent_bytes, 1280);
}

TEST(PlanArena, MlaRowsInBf16) {
  // 61 layers x 64 tokens x 576 elements; nothing else in the arena.
  EXPECT_EQ(plan_arena(int64_t(1) << 33, {paged(61, 64, 1152)}).extent_bytes, 61 * 64 * 1152);
}

TEST(PlanArena, PropertyOfAnySpecs) {
  EXPECT_TRUE(rc::check("every granule divides the extent, every unit fits, tails are small or the arena is", [] {
    std::vector<KvCacheSpec> specs;
    for (int i = *rc::gen::inRange(1, 5); i > 0; --i) {
      specs.push_back(*rc::gen::arbitrary<bool>()
                          ? paged(*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 33), 8 * *rc::gen::inRange(1, 65))
                          : state(*rc::gen::inRange(1, 9), *rc::gen::inRange(1, 20000)));
    }
    const int64_t bytes = int64_t(1) << *rc::gen::inRange(24, 33);
    ArenaGeometry geometry;
    try {
      geometry = plan_arena(bytes, specs);
    } catch (const Error&) {
      RC_DISCARD("row sizes without a usable common multiple");
    }
    RC_ASSERT(geometry.bytes() <= bytes);
    RC_ASSERT(geometry.bytes() + geometry.extent_bytes > bytes);
    int64_t largest = 0;
    int64_t step = 1;
    for (const KvCacheSpec& spec : specs) {
      RC_ASSERT(geometry.extent_bytes % granule_bytes(spec) == 0);
      RC_ASSERT(geometry.extent_bytes >= stored_unit_bytes(spec));
      RC_ASSERT(stored_unit_bytes(spec) >= spec.unit_bytes());
      RC_ASSERT(stored_unit_bytes(spec) % granule_bytes(spec) == 0);
      largest = std::max(largest, stored_unit_bytes(spec));
      step = std::lcm(step, granule_bytes(spec));
    }
    // With room for 34 of the largest unit and the step small beside it, 3 % can always be had.
    if (bytes / 64 >= 34 * largest && largest >= 34 * step) {
      for (const KvCacheSpec& spec : specs) {
        RC_ASSERT(geometry.extent_bytes % stored_unit_bytes(spec) <= geometry.extent_bytes * 0.03);
      }
    }
  }));
}

TEST(PlanArena, RefusesWithTheNumbers) {
  EXPECT_THAT([] { plan_arena(1 << 20, {}); }, ThrowsMessage<Error>(HasSubstr("no cache groups")));
  EXPECT_THAT([] { plan_arena(1 << 20, {paged(0, 16, 64)}); },
              ThrowsMessage<Error>(HasSubstr("\"attention\": num_layers is 0")));
  EXPECT_THAT([] { plan_arena(1 << 20, {paged(1, 0, 64)}); }, ThrowsMessage<Error>(HasSubstr("tokens_per_block is 0")));
  EXPECT_THAT(
      [] {
        plan_arena(1 << 20, {{CacheKind::window, "local", 1, 4, 64, 0}});
      },
      ThrowsMessage<Error>(HasSubstr("window is 0")));
  EXPECT_THAT(
      [] {
        plan_arena(5000, {paged(1, 16, 64), state(1, 4096)});
      },
      ThrowsMessage<Error>(HasSubstr("5,000 bytes is too small: 2 groups need at least one extent of 4,096")));
  EXPECT_THAT([] { plan_arena(0, {state(1, 256)}); }, ThrowsMessage<Error>(HasSubstr("too small")));
  EXPECT_THAT([] { plan_arena(int64_t(1) << 40, {paged(64, 64, 64)}); },
              ThrowsMessage<Error>(HasSubstr("at most 137,438,953,408 bytes work")));
  EXPECT_THAT(
      [] {
        plan_arena(int64_t(1) << 40, {paged(1, 1, 99991), paged(1, 1, 99989)});
      },
      ThrowsMessage<Error>(HasSubstr("no common multiple")));
}

TEST(Arena, HandsOutTheLowestFreeExtent) {
  Arena arena({256, 3});
  EXPECT_EQ(arena.take(), 0);
  EXPECT_EQ(arena.take(), 1);
  EXPECT_EQ(arena.take(), 2);
  EXPECT_EQ(arena.take(), std::nullopt);
  arena.give_back(2);
  arena.give_back(0);
  EXPECT_EQ(arena.free_extents(), 2);
  EXPECT_EQ(arena.check_integrity(), "");
  EXPECT_EQ(arena.take(), 0);
  EXPECT_EQ(arena.take(), 2);
  EXPECT_TRUE(arena.taken(1));
  EXPECT_EQ(arena.check_integrity(), "");
}

TEST(Arena, GivingBackWhatIsFreeIsABug) {
  Arena arena({256, 3});
  EXPECT_THROW(arena.give_back(0), std::logic_error);
  EXPECT_THROW(arena.give_back(-1), std::logic_error);
  EXPECT_THROW(arena.give_back(3), std::logic_error);
}

}  // namespace
}  // namespace medley
