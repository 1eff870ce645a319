#include "sampling/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace medley {
namespace {

// Known answers that the authors publish with Random123 (kat_vectors, "philox4x32 10").
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryBitOfSeedPositionAndSampleCounts) {
  std::set<double> seen = {philox_uniform(0, 0), philox_uniform(0, 0, 1)};
  for (int bit = 0; bit < 32; ++bit) seen.insert(philox_uniform(0, 0, 0, uint32_t(1) << bit));
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(philox_uniform(uint64_t(1) << bit, 0));
    seen.insert(philox_uniform(0, uint64_t(1) << bit));
  }
  EXPECT_EQ(seen.size(), 162u);
}

TEST(Philox, UniformLiesInTheUnitIntervalAndFillsIt) {
  double least = 1, most = 0, sum = 0;
  constexpr int draws = 100000;
  for (int position = 0; position < draws; ++position) {
    const double u = philox_uniform(7, uint64_t(position));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    least = std::min(least, u);
    most = std::max(most, u);
    sum += u;
  }
  EXPECT_LT(least, 1e-4);
  EXPECT_GT(most, 1 - 1e-4);
  EXPECT_NEAR(sum / draws, 0.5, 5 / std::sqrt(12.0 * draws));  // five standard deviations
}

}  // namespace
}  // namespace medley
