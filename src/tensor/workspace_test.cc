#include "tensor/workspace.h"

#include <gtest/gtest.h>

namespace medley {
namespace {

TEST(Workspace, ScopesGiveMemoryBackAndASecondPassAllocatesNothing) {
  Workspace workspace;
  const auto pass = [&] {
    const Workspace::Scope scope(workspace);
    const TensorView first = workspace.alloc(DType::f32, {1000, 1000});
    const void* inner = nullptr;
    {
      const Workspace::Scope nested(workspace);
      inner = workspace.alloc(DType::bf16, {7}).data;
    }
    EXPECT_EQ(workspace.alloc(DType::bf16, {7}).data, inner);
    const TensorView large = workspace.alloc(DType::f32, {3000, 1000});
    std::fill_n(first.as<float>(), first.elements(), 1.0f);
    std::fill_n(large.as<float>(), large.elements(), 2.0f);
    EXPECT_EQ(first.as<float>()[first.elements() - 1], 1.0f);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large.data) % 64, 0u);
  };
  pass();
  const size_t capacity = workspace.capacity();
  pass();
  EXPECT_EQ(workspace.capacity(), capacity);
}

}  // namespace
}  // namespace medley
