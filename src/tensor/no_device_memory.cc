// A build without CUDA: host memory only.
#include <cstring>

#include "tensor/device_memory.h"

namespace medley {
namespace {

constexpr const char* missing = "this build of medley has no CUDA (configure it with -DMEDLEY_CUDA=ON)";

void need_cpu(Device device) {
  if (device != Device::cpu) throw Error(missing);
}

}  // namespace

std::string cuda_missing() {
  return missing;
}

DeviceInfo device_info() {
  throw Error(missing);
}

std::byte* device_allocate(size_t) {
  throw Error(missing);
}

void device_free(std::byte*) noexcept {}

void copy_bytes(void* to, const void* from, size_t bytes, void* stream) {
  copy_async(to, from, bytes, stream);
}

void copy_async(void* to, const void* from, size_t bytes, void*) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void fill_bytes(void* to, int value, size_t bytes, Device device) {
  need_cpu(device);
  std::memset(to, value, bytes);
}

int64_t device_waits() {
  return 0;
}

void synchronize(void*) {}

PinnedBuffer::PinnedBuffer(size_t bytes, Device peer) : bytes_(bytes), peer_(peer) {
  detail::count_allocation();
  need_cpu(peer);
  data_ = new std::byte[bytes];
}

PinnedBuffer::~PinnedBuffer() {
  delete[] data_;
}

Stream::Stream(Device device) {
  need_cpu(device);
}

Stream::~Stream() {}  // with a device it has work to do

StreamMark::StreamMark(Device device) {
  need_cpu(device);
}

StreamMark::~StreamMark() {}  // with a device it has work to do

void StreamMark::record(void*) {}

void StreamMark::wait() const {}

void StreamMark::hold(void*) const {}

Graph::~Graph() {}  // with a device it has work to do

void Graph::begin(void*) {
  throw Error(missing);
}

Graph Graph::end(void*) {
  throw Error(missing);
}

void Graph::launch(void*) const {
  throw Error(missing);
}

}  // namespace medley
