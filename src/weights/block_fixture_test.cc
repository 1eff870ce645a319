// The block types against what the gguf package computes for the same bytes (tools/make_block_fixture.py), bit for bit;
// and the reader on a file that package wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/block_panel.h"
#include "kernels/weight.h"
#include "weights/gguf.h"

namespace medley {
namespace {

using testing::ElementsAre;

const GgufFile& fixture() {
  static const GgufFile file(MEDLEY_SOURCE_DIR "/tests/gguf/blocks.gguf");
  return file;
}

const char* const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1",   "Q8_0",   "Q2_K", "Q3_K",
                             "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};

TensorView blocks_of(const std::string& name) {
  return fixture().tensors().at(name).view;
}
TensorView values_of(const std::string& name) {
  return fixture().tensors().at(name + ".values").view;
}

testing::AssertionResult same_bits(const float* got, const TensorView& want) {
  for (int64_t i = 0; i < want.elements(); ++i)
    if (std::memcmp(got + i, want.as<float>() + i, 4) != 0)
      return testing::AssertionFailure() << "element " << i << " is " << got[i] << ", want " << want.as<float>()[i];
  return testing::AssertionSuccess();
}

TEST(BlockFixture, EveryTypeIsThere) {
  for (const char* name : names) {
    const TensorView view = blocks_of(name);
    EXPECT_TRUE(is_block(view.dtype)) << name;
    EXPECT_EQ(view.size(0), values_of(name).size(0)) << name;
    EXPECT_EQ(view.size(1), values_of(name).size(1)) << name;
    EXPECT_EQ(view.bytes(), fixture().tensors().at(name).bytes.size()) << name;
  }
}

TEST(BlockFixture, DequantizeGivesThePackagesBits) {
  for (const char* name : names) {
    std::vector<float> values(size_t(blocks_of(name).elements()));
    dequantize(blocks_of(name), values.data());
    EXPECT_TRUE(same_bits(values.data(), values_of(name))) << name;
  }
}

// Packed, and read back from the panels, an element is the same; and the packing grows by no more than it says.
TEST(BlockFixture, PanelsHoldTheSameElements) {
  for (const char* name : names) {
    const TensorView view = blocks_of(name);
    const int64_t n = view.size(0), k = view.size(1);
    WeightView weight{nullptr, view.dtype, WeightLayout::panel, n, k, 1, 0};
    weight.slot_bytes = packed_bytes(weight.layout, weight.dtype, n, k);
    const Buffer packed(size_t(weight.slot_bytes));
    std::memset(packed.data(), 0xff, packed.bytes());
    weight.data = packed.data();
    pack_rows(view.slice(0, 0, 3), 0, weight, packed.data());
    pack_rows(view.slice(0, 3, n - 3), 3, weight, packed.data());
    std::vector<float> values(size_t(n * k));
    for (int64_t row = 0; row < n; ++row) weight_row(weight, 0, row, values.data() + row * k);
    EXPECT_TRUE(same_bits(values.data(), values_of(name))) << name;
    weight.n = 64;
    for (int64_t row = n; row < 64; ++row)
      for (int64_t c = 0; c < k; c += 31) ASSERT_EQ(weight_at(weight, 0, row, c), 0.0f) << name;
    EXPECT_LE(double(packed.bytes()), 1.037 * double(64 * bytes_of(view.dtype, k))) << name;
  }
}

TEST(BlockFixture, ABlockViewMayBeTransposed) {
  const TensorView view = blocks_of("Q4_K"), want = values_of("Q4_K");
  TensorView transposed = view;
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  std::vector<float> values(size_t(view.elements()));
  dequantize(transposed, values.data());
  for (int64_t r = 0; r < view.size(0); ++r)
    for (int64_t c = 0; c < view.size(1); ++c)
      ASSERT_EQ(values[size_t(c * view.size(0) + r)], want.row<float>(r)[c]) << r << ", " << c;
}

TEST(BlockFixture, MetadataIsReadAsThePackageWroteIt) {
  const GgufFile& file = fixture();
  EXPECT_EQ(file.value("general.architecture").string(), "blocks");
  EXPECT_EQ(file.value("test.u32").integer(), 4000000000);
  EXPECT_EQ(file.value("test.i8").integer(), -7);
  EXPECT_EQ(file.value("test.u64").integer(), int64_t(1) << 40);
  EXPECT_EQ(file.value("test.f32").number(), double(0.1f));
  EXPECT_EQ(file.value("test.f64").number(), 0.1);
  EXPECT_TRUE(file.value("test.bool").boolean());
  EXPECT_EQ(file.value("test.string").string(), "Grüße");
  EXPECT_THAT(file.value("test.strings").strings(), ElementsAre("<s>", "", "▁a"));
  EXPECT_THAT(file.value("test.ints").integers(), ElementsAre(1, -2, 3));
  EXPECT_THAT(file.value("test.floats").numbers(), ElementsAre(0.5, -1.5));
}

}  // namespace
}  // namespace medley
