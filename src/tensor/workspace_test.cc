#include "tensor/workspace.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/device_memory.h"

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

// On the device where there is one; else an error that says what is missing, not a crash.
TEST(Workspace, OnTheDeviceOrWithAReason) {
  Workspace workspace(Device::cuda);
  if (!cuda_missing().empty()) {
    EXPECT_THROW(workspace.alloc(DType::f32, {4}), Error);
    return;
  }
  const TensorView there = workspace.alloc(DType::f32, {4});
  EXPECT_EQ(there.device, Device::cuda);
  const std::vector<float> sent{1, 2, 3, 4};
  std::vector<float> received(4);
  copy_bytes(there.data, sent.data(), there.bytes());
  copy_bytes(received.data(), there.data, there.bytes());
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace medley
