#include "tensor/device_memory.h"

#include <cuda_runtime_api.h>

#include <cstring>

namespace medley {
namespace {

void must(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail("{}: {}", call, cudaGetErrorString(status));
}

}  // namespace

std::string cuda_missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(status));
  return devices > 0 ? "" : "no CUDA device";
}

std::byte* device_allocate(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status != cudaSuccess) {
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    fail("cudaMalloc of {} MiB: {} ({} of {} MiB free)", bytes >> 20, cudaGetErrorString(status), free_bytes >> 20,
         total >> 20);
  }
  return static_cast<std::byte*>(data);
}

void device_free(std::byte* data) noexcept {
  cudaFree(data);
}

void copy_bytes(void* to, const void* from, size_t bytes, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda_stream), "cudaMemcpyAsync");
  must(cudaStreamSynchronize(cuda_stream), "cudaStreamSynchronize");
}

void fill_bytes(void* to, int value, size_t bytes, Device device) {
  if (device == Device::cpu) {
    std::memset(to, value, bytes);
  } else {
    must(cudaMemset(to, value, bytes), "cudaMemset");
  }
}

void synchronize(void* stream) {
  must(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "cudaStreamSynchronize");
}

}  // namespace medley
