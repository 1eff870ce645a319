#include "engine/backend.h"

#include <gtest/gtest.h>

#include "tensor/device_memory.h"

namespace medley {
namespace {

TEST(Backend, AutoTakesTheDeviceThatIsThere) {
  EXPECT_EQ(choose_device("cpu"), Device::cpu);
  EXPECT_EQ(choose_device("auto"), cuda_missing().empty() ? Device::cuda : Device::cpu);
}

TEST(Backend, CudaWithoutADeviceSaysWhatIsMissing) {
  if (cuda_missing().empty()) {
    EXPECT_EQ(choose_device("cuda"), Device::cuda);
    return;
  }
  try {
    choose_device("cuda");
    FAIL() << "chosen without a device";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(cuda_missing()), std::string::npos) << error.what();
  }
}

TEST(Backend, UnknownNamesAreRefused) {
  EXPECT_THROW(choose_device("tpu"), Error);
}

}  // namespace
}  // namespace medley
