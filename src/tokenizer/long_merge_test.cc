#include "tokenizer/long_merge.h"

#include <gtest/gtest.h>

#include <random>

#include "tokenizer/plain_merge.h"

namespace medley {
namespace {

using Ids = std::vector<int32_t>;
using Random = std::mt19937;

int32_t below(Random& random, int32_t end) {
  return std::uniform_int_distribution<int32_t>(0, end - 1)(random);
}

// Merges that no training would give: ranks shared by several pairs, pairs that merge before those that make them.
MergeTable odd_merges(Random& random, int32_t tokens, int32_t pairs, int32_t ranks) {
  MergeTable merges{size_t(pairs)};
  for (int32_t i = 0; i < pairs; ++i)
    merges.set(below(random, tokens), below(random, tokens), {uint32_t(below(random, ranks)), below(random, tokens)});
  return merges;
}

// Each token of `letters` letters or more is two of half its length, as a trained vocabulary has runs and repetitions.
MergeTable doubling_merges(int32_t letters, int32_t levels) {
  MergeTable merges{size_t(levels) + 1};
  int32_t token = letters;
  if (letters == 2) merges.set(0, 1, {0, token});
  for (int32_t i = 0; i < levels; ++i) {
    const int32_t half = letters == 2 ? token + i : i == 0 ? 0 : token + i - 1;
    merges.set(half, half, {uint32_t(i + 1), letters == 2 ? token + i + 1 : token + i});
  }
  return merges;
}

TEST(LongMerge, IsWhatTheDefinitionGives) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const int32_t tokens = 2 + below(random, 12);
    const MergeTable merges = odd_merges(random, tokens, 1 + below(random, tokens * tokens), 1 + below(random, 40));
    LongMerge long_merge;  // words of all sizes through the same buffers
    for (const int32_t size : {0, 1, 2, 3, below(random, 100), 600 + below(random, 300), below(random, 50)}) {
      Ids ids;
      const int32_t letters = 1 + below(random, 3);  // few: many equal pairs side by side
      for (int32_t i = 0; i < size; ++i) ids.push_back(below(random, std::min(letters, tokens)));
      const Ids expected = merged_plainly(merges, ids);
      long_merge.run(merges, ids);
      ASSERT_EQ(ids, expected) << "round " << round << ", " << size << " symbols";
    }
  }
}

// A few letters over and over, with something else at the ends and perhaps inside.
TEST(LongMerge, IsWhatTheDefinitionGivesForWordsThatRepeatThemselves) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const int32_t tokens = 2 + below(random, 6);
    const MergeTable merges = odd_merges(random, tokens, 1 + below(random, tokens * tokens), 1 + below(random, 30));
    Ids unit, ids;
    for (int32_t i = 1 + below(random, 4); i > 0; --i) unit.push_back(below(random, tokens));
    while (ids.size() < 900) ids.insert(ids.end(), unit.begin(), unit.end());
    for (int32_t i = below(random, 4); i > 0; --i) ids[size_t(below(random, 900))] = below(random, tokens);
    ids.front() = below(random, tokens);
    const Ids expected = merged_plainly(merges, ids);
    LongMerge().run(merges, ids);
    ASSERT_EQ(ids, expected) << "round " << round;
  }
}

TEST(LongMerge, RunsHalveAsTheyShould) {
  const MergeTable merges = doubling_merges(1, 4);  // tokens of 2, 4, 8 and 16 letters: 1, 2, 3, 4
  Ids ids(1003, 0);
  LongMerge().run(merges, ids);
  Ids expected(62, 4);  // 62 * 16 + 11
  expected.insert(expected.end(), {3, 1, 0});
  EXPECT_EQ(ids, expected);
}

// Time is linear in the length: steps are what takes it. A heap over all candidates, or a search for the best one,
// would take more a symbol in longer words.
TEST(LongMerge, StepsAreLinearInTheLength) {
  Random random(2);
  struct Case {
    const char* name;
    MergeTable merges;
    int32_t letters;
    bool in_turns;
  };
  const Case cases[] = {{"one letter", doubling_merges(1, 7), 1, true},
                        {"two letters in turns", doubling_merges(2, 7), 2, true},
                        {"letters that never merge", MergeTable(1), 1, true},
                        {"letters at random", doubling_merges(2, 7), 2, false}};
  for (const Case& c : cases) {
    const auto steps_a_symbol = [&](int32_t size) {
      Ids ids;
      for (int32_t i = 0; i < size; ++i) ids.push_back(c.in_turns ? i % c.letters : below(random, c.letters));
      LongMerge long_merge;
      long_merge.run(c.merges, ids);
      return double(long_merge.steps()) / size;
    };
    const double few = steps_a_symbol(1 << 12), many = steps_a_symbol(1 << 19);
    EXPECT_LT(many, 1.05 * few + 0.1) << c.name;
    EXPECT_LT(many, 8) << c.name;
  }
}

}  // namespace
}  // namespace medley
