#include "tensor/tensor.h"

#include <gtest/gtest.h>

namespace medley {
namespace {

TEST(TensorView, SlicesShareMemoryAndKnowTheirStrides) {
  Buffer buffer(6 * 4);
  const TensorView whole = buffer.view(DType::i32, {2, 3});
  for (int i = 0; i < 6; ++i) whole.as<int32_t>()[i] = i;
  const TensorView column = whole.slice(1, 1, 2);
  EXPECT_FALSE(column.contiguous());
  EXPECT_EQ(column.row<int32_t>(1)[0], 4);
  EXPECT_TRUE(whole.slice(0, 1, 1).contiguous());
  EXPECT_EQ(whole.describe(), "i32 [2, 3]");
}

TEST(TensorView, TheWrongTypeIsCaught) {
  Buffer buffer(16);
  EXPECT_THROW(buffer.view(DType::f32, {4}).as<bf16>(), std::logic_error);
  EXPECT_THROW(buffer.view(DType::f32, {5}), std::logic_error);
}

TEST(Buffer, IsAlignedAndMoves) {
  Buffer first(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % 64, 0u);
  const std::byte* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);
}

}  // namespace
}  // namespace medley
