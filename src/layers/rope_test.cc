// Frequencies under the published scaling rules, against values worked out by hand from the formulas.
#include "layers/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace medley {
namespace {

TEST(Rope, PlainAndLinear) {
  const auto plain = inverse_frequencies({.dim = 8, .theta = 10000});
  ASSERT_EQ(plain.size(), 4u);
  EXPECT_FLOAT_EQ(plain[0], 1.0f);
  EXPECT_FLOAT_EQ(plain[1], 0.1f);
  EXPECT_FLOAT_EQ(plain[3], 0.001f);
  const auto linear = inverse_frequencies({.dim = 8, .theta = 10000, .scaling = RopeScaling::linear, .factor = 4});
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(linear[i], plain[i] / 4);
}

TEST(Rope, Llama3KeepsShortWavelengthsDividesLongOnesAndJoinsThemContinuously) {
  const RopeSpec spec{.dim = 128,
                      .theta = 500000,
                      .scaling = RopeScaling::llama3,
                      .factor = 8,
                      .original_max_positions = 8192,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4};
  const auto plain = inverse_frequencies({.dim = 128, .theta = 500000});
  const auto scaled = inverse_frequencies(spec);
  int kept = 0, divided = 0, between = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8);
      ++divided;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
      ++between;
    }
    if (i > 0) {
      EXPECT_LT(scaled[i], scaled[i - 1]);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(between, 0);
}

TEST(Rope, YarnKeepsFastDimensionsAndInterpolatesSlowOnes) {
  // DeepSeek-V3: 64 dimensions, theta 10000, 4096 positions times 40. A dimension i turns 4096 / (2 pi theta^(2i/64))
  // times; the ramp runs from floor(10.47) = 10 to ceil(22.51) = 23.
  const RopeSpec spec{
      .dim = 64, .theta = 10000, .scaling = RopeScaling::yarn, .factor = 40, .original_max_positions = 4096};
  const auto plain = inverse_frequencies({.dim = 64, .theta = 10000});
  const auto scaled = inverse_frequencies(spec);
  for (size_t i = 0; i <= 10; ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i]) << i;
  for (size_t i = 23; i < 32; ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 40) << i;
  for (size_t i = 11; i < 23; ++i) {
    const float ramp = float(i - 10) / 13;
    EXPECT_NEAR(scaled[i], plain[i] / 40 * ramp + plain[i] * (1 - ramp), 1e-6f * plain[i]) << i;
  }
}

}  // namespace
}  // namespace medley
