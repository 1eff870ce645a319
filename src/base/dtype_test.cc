#include "base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

namespace medley {
namespace {

TEST(Bf16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    bf16 value;
    value.bits = uint16_t(bits);
    const float wide = float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(float(bf16(wide))));
    } else {
      EXPECT_EQ(bf16(wide).bits, bits);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float(bf16(1.0f + 0x1p-8f)), 1.0f);            // tie, even below
  EXPECT_EQ(float(bf16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);  // tie, even above
  EXPECT_EQ(float(bf16(std::numeric_limits<float>::max())), std::numeric_limits<float>::infinity());
}

TEST(F16, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float wide = f16::widen(uint16_t(bits));
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(f16::widen(f16::round(wide))));
    } else {
      EXPECT_EQ(f16::round(wide), bits) << wide;
    }
  }
}

TEST(F16, RoundsToNearestEvenAtEveryMidpoint) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // each finite positive value and its successor
    const float low = f16::widen(uint16_t(bits)), high = f16::widen(uint16_t(bits + 1));
    const float middle = float((double(low) + double(high)) / 2);
    EXPECT_EQ(f16::round(middle), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(f16::round(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(f16::round(std::nextafter(middle, 1e9f)), bits + 1);
  }
}

TEST(BlockTypes, HaveABlocksBytesAndNoElements) {
  EXPECT_EQ(bytes_of(DType::q4_k, 512), 2 * 144);
  EXPECT_EQ(bytes_of(DType::q8_0, 32), 34);
  EXPECT_EQ(bytes_of(DType::bf16, 3), 6);
  EXPECT_EQ(block_elements(DType::bf16), 1);
  EXPECT_EQ(name_of(DType::mxfp4), "mxfp4");
  EXPECT_TRUE(is_block(DType::q4_0));
  EXPECT_FALSE(is_block(DType::u8));
  EXPECT_THROW(size_of(DType::q4_k), std::logic_error);
  EXPECT_THROW(bytes_of(DType::q4_k, 255), std::logic_error);
}

}  // namespace
}  // namespace medley
