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

TEST(TensorView, BlockTypesAreCutOnBlockBorders) {
  Buffer buffer(2 * 2 * 144);
  const TensorView whole = buffer.view(DType::q4_k, {2, 512});
  EXPECT_EQ(whole.bytes(), 4u * 144);
  const TensorView part = whole.slice(1, 256, 256).slice(0, 1, 1);
  EXPECT_EQ(static_cast<std::byte*>(part.data), buffer.data() + 3 * 144);
  EXPECT_EQ(part.bytes(), 144u);
  EXPECT_THROW(whole.slice(1, 0, 128), std::logic_error);
  EXPECT_THROW(whole.slice(1, 128, 256), std::logic_error);
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
