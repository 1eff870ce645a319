#include "tensor/device_memory.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>

namespace medley {
namespace {

void must(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail("{}: {}", call, cudaGetErrorString(status));
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

std::atomic<int64_t> wait_count = 0;

// Without a device all memory is the host's, and the runtime refuses even copies there.
bool usable() {
  static const bool found = cuda_missing().empty();
  return found;
}

}  // namespace

std::string cuda_missing() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  if (status != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(status));
  return devices > 0 ? "" : "no CUDA device";
}

DeviceInfo device_info() {
  DeviceInfo info;
  cudaDeviceProp properties;
  int device = 0;
  must(cudaGetDevice(&device), "cudaGetDevice");
  must(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  info.name = properties.name;
  must(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
  return info;
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
  copy_async(to, from, bytes, stream);
  synchronize(stream);
}

void copy_async(void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (!usable()) return void(std::memcpy(to, from, bytes));
  must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)), "cudaMemcpyAsync");
}

void fill_bytes(void* to, int value, size_t bytes, Device device) {
  if (device == Device::cpu) {
    std::memset(to, value, bytes);
  } else {
    must(cudaMemset(to, value, bytes), "cudaMemset");
  }
}

int64_t device_waits() {
  return wait_count.load(std::memory_order_relaxed);
}

void synchronize(void* stream) {
  if (!usable()) return;
  wait_count.fetch_add(1, std::memory_order_relaxed);
  must(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

PinnedBuffer::PinnedBuffer(size_t bytes, Device peer) : bytes_(bytes), peer_(peer) {
  detail::count_allocation();
  if (peer == Device::cpu) {
    data_ = new std::byte[bytes];
    return;
  }
  void* data = nullptr;
  must(cudaMallocHost(&data, bytes), "cudaMallocHost");
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() {
  if (peer_ == Device::cpu) {
    delete[] data_;
  } else {
    cudaFreeHost(data_);
  }
}

// In order with the default stream, which plain copies and fills use.
Stream::Stream(Device device) {
  if (device == Device::cpu) return;
  cudaStream_t stream = nullptr;
  must(cudaStreamCreate(&stream), "cudaStreamCreate");
  stream_ = stream;
}

Stream::~Stream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_of(stream_));
}

StreamMark::StreamMark(Device device) {
  if (device == Device::cpu) return;
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  event_ = event;
}

StreamMark::~StreamMark() {
  if (event_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

void StreamMark::record(void* stream) {
  if (event_ != nullptr) must(cudaEventRecord(static_cast<cudaEvent_t>(event_), stream_of(stream)), "cudaEventRecord");
}

void StreamMark::wait() const {
  if (event_ == nullptr) return;
  const auto event = static_cast<cudaEvent_t>(event_);
  const cudaError_t status = cudaEventQuery(event);
  if (status != cudaErrorNotReady) return must(status, "cudaEventQuery");
  cudaGetLastError();  // it is remembered there like a failure
  wait_count.fetch_add(1, std::memory_order_relaxed);
  must(cudaEventSynchronize(event), "cudaEventSynchronize");
}

void StreamMark::hold(void* stream) const {
  if (event_ != nullptr)
    must(cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event_), 0), "cudaStreamWaitEvent");
}

Graph::~Graph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_));
}

void Graph::begin(void* stream) {
  must(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

Graph Graph::end(void* stream) {
  cudaGraph_t recorded = nullptr;
  must(cudaStreamEndCapture(stream_of(stream), &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  must(status, "cudaGraphInstantiate");
  Graph result;
  result.graph_ = graph;
  return result;
}

void Graph::launch(void* stream) const {
  must(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), stream_of(stream)), "cudaGraphLaunch");
}

}  // namespace medley
