#include "cache/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>
#include <stdexcept>

namespace medley {
namespace {

using testing::ElementsAre;

// Pages of 2 tokens of 8 bytes; states of 256 bytes. An extent of 1024 bytes holds 64 pages or 4 states.
const KvCacheSpec pages{CacheKind::full, "attention", 1, 2, 8};
const KvCacheSpec states{CacheKind::state, "mamba", 2, 0, 200};
constexpr ArenaGeometry geometry{1024, 3};

std::vector<int32_t> take(Pool& pool, int64_t n) {
  std::vector<int32_t> units;
  EXPECT_TRUE(pool.take(n, units));
  return units;
}

TEST(Pool, UnitsAreKnownByRowNumber) {
  Arena arena(geometry);
  Pool state_pool(states, arena);
  Pool page_pool(pages, arena);
  EXPECT_THAT(take(state_pool, 2), ElementsAre(0, 1));
  EXPECT_THAT(take(page_pool, 2), ElementsAre(128, 130));  // extent 1: 1024 bytes / rows of 8; 2 rows a page
  EXPECT_THAT(take(state_pool, 3), ElementsAre(2, 3, 8));  // extent 2: 2048 / 256
}

TEST(Pool, TakesFromTheFullestExtentAndGivesEmptyOnesBack) {
  Arena arena(geometry);
  Pool pool(states, arena);
  const std::vector<int32_t> units = take(pool, 12);
  EXPECT_EQ(arena.free_extents(), 0);
  for (int32_t unit : {1, 2, 3, 5, 8, 9, 10, 11}) pool.give_back(unit);  // extent 0 keeps one, 1 keeps three, 2 none
  EXPECT_EQ(arena.free_extents(), 1);
  EXPECT_EQ(pool.free_units(), 4);
  EXPECT_EQ(pool.check_integrity(), "");
  EXPECT_THAT(take(pool, 2), ElementsAre(5, 1));
}

TEST(Pool, TakesAllOrNothing) {
  Arena arena(geometry);
  Pool pool(states, arena);
  take(pool, 2);
  std::vector<int32_t> units{77};
  EXPECT_FALSE(pool.take(11, units));
  EXPECT_THAT(units, ElementsAre(77));
  EXPECT_EQ(arena.free_extents(), 2);
  EXPECT_TRUE(pool.take(10, units));
  EXPECT_TRUE(pool.take(0, units));
  EXPECT_FALSE(pool.take(1, units));
}

TEST(Pool, GivingBackWhatIsNotHeldIsABug) {
  Arena arena(geometry);
  Pool pool(pages, arena);
  take(pool, 2);
  EXPECT_THROW(pool.give_back(1), std::logic_error);  // inside a page
  EXPECT_THROW(pool.give_back(4), std::logic_error);
  EXPECT_THROW(pool.give_back(-1), std::logic_error);
  EXPECT_THROW(pool.give_back(1 << 20), std::logic_error);
  pool.give_back(2);
  EXPECT_THROW(pool.give_back(2), std::logic_error);
}

TEST(Pool, PropertyOfAnyHistory) {
  EXPECT_TRUE(rc::check("two pools share an arena: units never overlap, books balance, nothing is lost", [] {
    Arena arena({1024, *rc::gen::inRange(1, 8)});
    const KvCacheSpec big_pages{CacheKind::full, "attention", 3, 2, 32};  // 192 bytes: an extent has a tail
    Pool pools[2] = {Pool(states, arena), Pool(big_pages, arena)};
    const int64_t granules[2] = {256, 32};
    std::vector<int32_t> held[2];
    for (int step = 0; step < 60; ++step) {
      const int which = *rc::gen::inRange(0, 2);
      Pool& pool = pools[which];
      if (*rc::gen::arbitrary<bool>()) {
        const int64_t n = *rc::gen::inRange(0, 9);
        const int64_t room = pool.free_units() + arena.free_extents() * pool.units_per_extent();
        RC_ASSERT(pool.take(n, held[which]) == (n <= room));
      } else if (!held[which].empty()) {
        const auto victim = held[which].begin() + *rc::gen::inRange<int>(0, int(held[which].size()));
        pool.give_back(*victim);
        held[which].erase(victim);
      }
      std::set<int64_t> bytes;  // every 64th byte of every held unit
      for (int p = 0; p < 2; ++p) {
        RC_ASSERT(pools[p].check_integrity() == "");
        RC_ASSERT(pools[p].held() == int64_t(held[p].size()));
        for (int32_t unit : held[p]) {
          for (int64_t at = 0; at < pools[p].unit_bytes(); at += 64) {
            RC_ASSERT(bytes.insert(unit * granules[p] + at).second);
            RC_ASSERT(unit * granules[p] + at < arena.geometry().bytes());
          }
        }
      }
      RC_ASSERT(arena.check_integrity() == "");
      RC_ASSERT(pools[0].extents() + pools[1].extents() + arena.free_extents() == arena.geometry().extents);
    }
  }));
}

}  // namespace
}  // namespace medley
