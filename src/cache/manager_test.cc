#include "cache/manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace medley {
namespace {

using testing::ElementsAre;

constexpr ArenaGeometry geometry{1024, 64};
const KvCacheSpec full{CacheKind::full, "attention", 1, 4, 64};     // 4 pages an extent
const KvCacheSpec window{CacheKind::window, "local", 1, 4, 64, 6};  // a token sees 5 others
const KvCacheSpec state{CacheKind::state, "mamba", 3, 0, 256};

// Reserves, computes [from, to) and commits, as a step does.
void compute(SingleTypeCacheManager& manager, BlockTable& table, int64_t from, int64_t to, int64_t reserved) {
  int64_t taken = 0;
  ASSERT_TRUE(manager.reserve(table, from, reserved, &taken));
  manager.append(table, to);
  manager.drop_dead(table, to, reserved);
}

TEST(FullManager, HoldsAPagePerBlockOfTokens) {
  Arena arena(geometry);
  const auto manager = make_manager(full, arena, 16);
  EXPECT_EQ(manager->blocks_needed(0, 0), 0);
  EXPECT_EQ(manager->blocks_needed(0, 1), 1);
  EXPECT_EQ(manager->blocks_needed(3, 4), 1);
  EXPECT_EQ(manager->blocks_needed(0, 5), 2);
}

TEST(FullManager, TruncateKeepsWholeAndPartlyUsedPages) {
  Arena arena(geometry);
  const auto manager = make_manager(full, arena, 16);
  BlockTable table;
  compute(*manager, table, 0, 10, 20);
  EXPECT_THAT(table.units, ElementsAre(0, 4, 8));
  EXPECT_EQ(table.held(), 5);
  EXPECT_EQ(manager->longest_truncation(table, 10, 5), 5);
  manager->truncate(table, 5);
  EXPECT_THAT(table.units, ElementsAre(0, 4));
  EXPECT_EQ(manager->pool().held(), 2);
  manager->truncate(table, 0);
  EXPECT_EQ(manager->pool().held(), 0);
}

TEST(WindowManager, DropsPagesWhollyBeforeTheNextTokensWindow) {
  Arena arena(geometry);
  const auto manager = make_manager(window, arena, 4);
  BlockTable table;
  compute(*manager, table, 0, 4, 4);
  compute(*manager, table, 4, 8, 8);
  EXPECT_THAT(table.units, ElementsAre(0, 4));  // position 8 sees 3 ... 8
  compute(*manager, table, 8, 9, 9);
  EXPECT_THAT(table.units, ElementsAre(-1, 4, 8));  // position 9 sees 4 ... 9
  compute(*manager, table, 9, 12, 12);
  EXPECT_THAT(table.units, ElementsAre(-1, 4, 8));
  compute(*manager, table, 12, 13, 13);
  EXPECT_THAT(table.units, ElementsAre(-1, -1, 8, 0));  // the first page, free again, serves as the fourth
  EXPECT_EQ(manager->pool().held(), 2);
}

TEST(WindowManager, ALongPromptNeedsTheWindowAndOneStep) {
  Arena arena(geometry);
  const auto manager = make_manager(window, arena, 8);
  // 5 tokens before the step and 8 in it, at worst from a page's last token on: 1 + 4 + 4 + 4 -> 4 pages.
  EXPECT_EQ(manager->blocks_needed(0, 100000), 4);
  EXPECT_EQ(manager->blocks_needed(0, 9), 3);
  BlockTable table;
  for (int64_t at = 0; at < 200; at += 8) {
    compute(*manager, table, at, at + 8, 200);
    EXPECT_LE(manager->pool().held(), 4);
  }
  EXPECT_EQ(manager->pool().held(), 2);  // 195 ... 199 are read again
}

TEST(WindowManager, TruncatesAsFarAsTheWindowsAreStillThere) {
  Arena arena(geometry);
  const auto manager = make_manager(window, arena, 4);
  BlockTable table;
  for (int64_t at = 0; at < 16; at += 4) compute(*manager, table, at, at + 4, at + 4);
  EXPECT_EQ(table.dropped, 2);                                // position 16 sees 11 ... 16
  EXPECT_EQ(manager->longest_truncation(table, 16, 14), 14);  // position 14 sees 9 ...
  EXPECT_EQ(manager->longest_truncation(table, 16, 12), 0);   // position 12 sees 7 ...: dropped
  manager->truncate(table, 0);
  EXPECT_EQ(manager->pool().held(), 0);
  EXPECT_EQ(table.dropped, 0);
}

TEST(WindowManager, PropertyOfAnyChunks) {
  EXPECT_TRUE(rc::check("a reservation suffices for any chunks and keeps what is read; blocks_needed is monotone", [] {
    Arena arena({1024, 64});
    const int32_t block = *rc::gen::inRange(1, 7);
    const int64_t max_step = *rc::gen::inRange(1, 20);
    const KvCacheSpec spec{CacheKind::window, "local", 1, block, 64, *rc::gen::inRange(1, 30)};
    const auto manager = make_manager(spec, arena, max_step);
    const int64_t tokens = *rc::gen::inRange(1, 100);
    BlockTable table;
    int64_t taken = 0;
    RC_ASSERT(manager->reserve(table, 0, tokens, &taken));
    for (int64_t computed = 0; computed < tokens;) {
      const int64_t n = *rc::gen::inRange<int64_t>(1, std::min(max_step, tokens - computed) + 1);
      manager->append(table, computed + n);  // throws when the reservation falls short
      for (int64_t at = std::max<int64_t>(0, computed - spec.window + 1); at < computed + n; ++at) {
        RC_ASSERT(table.units.at(at / block) >= 0);
      }
      RC_ASSERT(manager->blocks_needed(computed, tokens) >= manager->blocks_needed(computed + n, tokens));
      RC_ASSERT(manager->blocks_needed(computed, tokens) <= manager->blocks_needed(computed, tokens + 1));
      computed += n;
      manager->drop_dead(table, computed, tokens);
      RC_ASSERT(table.held() == manager->blocks_needed(computed, tokens));
      RC_ASSERT(table.held() == manager->pool().held());
    }
    RC_ASSERT(table.held() <= (spec.window + block - 2) / block + 1);  // nothing to come: the next window only
  }));
}

TEST(StateManager, HoldsAUnitPerLayerAndReadsZeroFirst) {
  Arena arena(geometry);
  const auto manager = make_manager(state, arena, 16);
  BlockTable a, b;
  compute(*manager, a, 0, 5, 9);
  compute(*manager, b, 0, 1, 1);
  EXPECT_EQ(manager->pool().held(), 6);
  const BlockTable* tables[2] = {&a, &b};
  const PlanRow rows[2] = {{.request = 1, .computed = 5}, {.request = 2, .computed = 0}};
  PlanGroup group;
  manager->fill(rows, tables, group);
  EXPECT_THAT(group.state_in, ElementsAre(0, -1, 1, -1, 2, -1));  // [layer][row]
  EXPECT_THAT(group.state_out, ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(StateManager, StaysOrStartsOver) {
  Arena arena(geometry);
  const auto manager = make_manager(state, arena, 16);
  BlockTable table;
  compute(*manager, table, 0, 5, 9);
  EXPECT_EQ(manager->longest_truncation(table, 5, 5), 5);
  EXPECT_EQ(manager->longest_truncation(table, 5, 4), 0);
  manager->truncate(table, 5);
  EXPECT_EQ(table.held(), 3);
  manager->truncate(table, 0);
  EXPECT_EQ(table.held(), 0);
}

}  // namespace
}  // namespace medley
