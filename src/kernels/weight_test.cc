#include "kernels/weight.h"

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using test::get;
using test::Rng;
using test::Tensor;
using test::Weight;

constexpr DType stored[] = {DType::f32, DType::bf16, DType::f16};
constexpr WeightLayout layouts[] = {WeightLayout::row_major, WeightLayout::panel};

TEST(Weight, EveryElementIsFoundAgainInEveryLayout) {
  Rng rng(1);
  for (DType dtype : stored)
    for (WeightLayout layout : layouts)
      for (auto [n, k] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {64, 2}, {65, 7}, {130, 33}, {63, 64}}) {
        const Weight weight(rng, dtype, layout, n, k, 2);
        for (int64_t s = 0; s < 2; ++s)
          for (int64_t row = 0; row < n; ++row)
            for (int64_t c = 0; c < k; ++c)
              ASSERT_EQ(weight_at(weight.view, s, row, c), weight.at(s, row, c)) << s << " " << row << " " << c;
      }
}

TEST(Weight, PaddingRowsAndTheOddColumnAreZero) {
  Rng rng(2);
  for (DType dtype : stored) {
    const int64_t n = 70, k = 5;
    const Weight weight(rng, dtype, WeightLayout::panel, n, k);
    // A kernel reads whole panels, and whole pairs of 16-bit weights: what lies outside the matrix must add nothing.
    const int64_t columns = size_of(dtype) == 4 ? k : k + 1;
    WeightView padded = weight.view;
    padded.n = 128;
    padded.k = columns;
    for (int64_t row = 0; row < 128; ++row)
      for (int64_t c = 0; c < columns; ++c)
        if (row >= n || c >= k) {
          ASSERT_EQ(weight_at(padded, 0, row, c), 0.0f) << row << " " << c;
        }
    EXPECT_EQ(packed_bytes(WeightLayout::panel, dtype, n, k), 128 * columns * int64_t(size_of(dtype)));
  }
}

TEST(Weight, PartsPackAsTheWholeDoes) {
  Rng rng(3);
  for (DType dtype : stored)
    for (WeightLayout layout : layouts) {
      const int64_t n = 150, k = 9;
      const Weight whole(rng, dtype, layout, n, k);
      Buffer parts(whole.packed.bytes());
      std::memset(parts.data(), 0xff, parts.bytes());
      for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 50}, {50, 129}, {129, 150}})
        pack_rows(whole.dense.view().slice(0, begin, end - begin), begin, whole.view, parts.data());
      EXPECT_EQ(std::memcmp(parts.data(), whole.packed.data(), parts.bytes()), 0);
    }
}

TEST(Weight, BlocksPackAsTheValuesTheyStandFor) {
  std::mt19937 rng(4);
  for (DType type : test::block_types)
    for (DType dtype : {DType::f32, DType::bf16})
      for (WeightLayout layout : layouts) {
        const int64_t n = 70, k = 512;
        std::vector<std::byte> blocks = test::random_blocks(rng, type, n, k);
        const TensorView source(blocks.data(), type, {n, k});
        std::vector<float> values(size_t(n * k));
        dequantize(source, values.data());
        Buffer packed(size_t(packed_bytes(layout, dtype, n, k)));
        const WeightView view{.data = packed.data(), .dtype = dtype, .layout = layout, .n = n, .k = k};
        for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 64}, {64, 70}})
          pack_rows(source.slice(0, begin, end - begin), begin, view, packed.data());
        for (int64_t row = 0; row < n; ++row)
          for (int64_t c = 0; c < k; ++c) {
            const float value = values[size_t(row * k + c)];
            ASSERT_EQ(weight_at(view, 0, row, c), dtype == DType::f32 ? value : float(bf16(value)))
                << int(type) << " " << row << " " << c;
          }
      }
}

TEST(Weight, AStridedSourcePacksAsADenseOne) {
  Rng rng(4);
  for (DType dtype : stored)
    for (WeightLayout layout : layouts) {
      Tensor wide(dtype, {20, 14}, 2);
      wide.fill(rng);
      TensorView every_other = wide.view().slice(1, 3, 5);  // columns 3, 5, 7, 9, 11
      every_other.strides[1] = 2;
      WeightView to{nullptr, dtype, layout, 20, 5, 1, packed_bytes(layout, dtype, 20, 5)};
      Buffer packed(size_t(to.slot_bytes));
      to.data = packed.data();
      pack_rows(every_other, 0, to, packed.data());
      for (int64_t row = 0; row < 20; ++row)
        for (int64_t c = 0; c < 5; ++c) ASSERT_EQ(weight_at(to, 0, row, c), get(wide, {row, 3 + 2 * c}));
    }
}

}  // namespace
}  // namespace medley
