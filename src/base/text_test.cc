#include "base/text.h"

#include <gtest/gtest.h>

namespace medley {
namespace {

TEST(Text, Commas) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(70272), "70,272");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
}

TEST(Text, Bytes) {
  EXPECT_EQ(human_bytes(12), "12 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(parse_bytes("12"), 12u);
  EXPECT_EQ(parse_bytes("1.5K"), 1536u);
  EXPECT_EQ(parse_bytes("2GiB"), uint64_t(2) << 30);
  EXPECT_EQ(parse_bytes("3gb"), std::nullopt);  // GB is not 1024^3 to everybody: only G, GiB, GB with capitals
  for (const char* bad : {"", "x", "-1", "1X", "1GG", "1e30G", "nan"}) EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
}

TEST(Text, Ids) {
  EXPECT_EQ(parse_ids("1, 2,3"), (std::vector<int32_t>{1, 2, 3}));
  for (const char* bad : {"", ",", "1,", "1 2", "-1", "1,,2", "99999999999", "a"})
    EXPECT_EQ(parse_ids(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace medley
