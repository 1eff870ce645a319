// A build without CUDA: host memory only.
#include <cstring>

#include "tensor/device_memory.h"

namespace medley {
namespace {

constexpr const char* missing = "this build of medley has no CUDA (configure it with -DMEDLEY_CUDA=ON)";

}  // namespace

std::string cuda_missing() {
  return missing;
}

std::byte* device_allocate(size_t) {
  throw Error(missing);
}

void device_free(std::byte*) noexcept {}

void copy_bytes(void* to, const void* from, size_t bytes, void*) {
  std::memcpy(to, from, bytes);
}

void fill_bytes(void* to, int value, size_t bytes, Device device) {
  if (device != Device::cpu) throw Error(missing);
  std::memset(to, value, bytes);
}

void synchronize(void*) {}

}  // namespace medley
