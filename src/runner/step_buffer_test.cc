#include "runner/step_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace medley {
namespace {

std::vector<Device> devices() {
  if (cuda_missing().empty()) return {Device::cpu, Device::cuda};
  return {Device::cpu};
}

std::vector<int32_t> read(const TensorView& view) {
  std::vector<int32_t> values(size_t(view.elements()));
  copy_bytes(values.data(), view.data, view.bytes());
  return values;
}

TEST(StepBuffer, TablesArriveWhole) {
  for (const Device device : devices()) {
    StepBuffer buffer(device);
    const Stream stream(device);
    for (const int64_t rows : {0, 1, 3, 1000}) {
      buffer.begin(4096 + size_t(rows) * 16);
      const auto a = buffer.add_i32({rows});
      const auto b = buffer.add_i64({1});
      const auto c = buffer.add_i32({rows, 2});
      ASSERT_EQ(a.values.size(), size_t(rows));
      ASSERT_EQ(c.values.size(), size_t(2 * rows));
      std::fill(a.values.begin(), a.values.end(), 7);
      b.values[0] = int64_t(1) << 40;
      for (size_t i = 0; i < c.values.size(); ++i) c.values[i] = int32_t(i);
      buffer.send(stream.get());
      synchronize(stream.get());
      EXPECT_EQ(read(a.view), std::vector<int32_t>(size_t(rows), 7));
      const std::vector<int32_t> pairs = read(c.view);
      for (size_t i = 0; i < pairs.size(); ++i) ASSERT_EQ(pairs[i], int32_t(i));
      int64_t big = 0;
      copy_bytes(&big, b.view.data, sizeof(big));
      EXPECT_EQ(big, int64_t(1) << 40);
    }
  }
}

// What a recorded graph relies on.
TEST(StepBuffer, TheSameSizesLieAtTheSameAddresses) {
  for (const Device device : devices()) {
    StepBuffer buffer(device);
    EXPECT_TRUE(buffer.begin(2048));
    const void* first = buffer.add_i32({5}).view.data;
    const void* second = buffer.add_i64({9}).view.data;
    buffer.begin(1024);
    buffer.add_i32({50});
    const int64_t before = allocations();
    EXPECT_FALSE(buffer.begin(2048)) << "nothing has grown";
    EXPECT_EQ(buffer.add_i32({5}).view.data, first);
    EXPECT_EQ(buffer.add_i64({9}).view.data, second);
    EXPECT_EQ(allocations(), before);
    EXPECT_TRUE(buffer.begin(1 << 20)) << "addresses have changed";
  }
}

}  // namespace
}  // namespace medley
