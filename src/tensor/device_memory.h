// Memory of the CUDA device, copies to and from it, and streams, for code that sees no CUDA header. device_memory.cc
// needs the toolkit; a build without it takes no_device_memory.cc, in which every call that needs a device throws what
// is missing.
#pragma once

#include <string>
#include <utility>

#include "tensor/tensor.h"

namespace medley {

// Empty when this process can use a CUDA device; else what is missing (toolkit, driver, device).
std::string cuda_missing();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  size_t free_bytes = 0, total_bytes = 0;
};
DeviceInfo device_info();

std::byte* device_allocate(size_t bytes);  // plain cudaMalloc; throws Error with the bytes asked for and free
void device_free(std::byte* data) noexcept;

// Between any two memories, after what `stream` (cudaStream_t; null: the default stream) holds; done on return.
void copy_bytes(void* to, const void* from, size_t bytes, void* stream = nullptr);
// The same, not waited for. Host memory must be a PinnedBuffer's and stay as it is until the stream has got there.
void copy_async(void* to, const void* from, size_t bytes, void* stream);
void fill_bytes(void* to, int value, size_t bytes, Device device);
void synchronize(void* stream = nullptr);
// How many times this process has waited for a device: a test holds it against a running engine, whose steps wait for
// nothing but their tokens. A StreamMark that was reached already does not count.
int64_t device_waits();

// Host memory that `peer` copies from and to at full speed: page-locked when it is the CUDA device.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(size_t bytes, Device peer);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(peer_, other.peer_);
  }

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Device peer_ = Device::cpu;
};

// A queue of work. On the CPU there is none: work is done when a call returns, and get() is null.
class Stream {
 public:
  Stream() = default;
  explicit Stream(Device device);
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }  // cudaStream_t

 private:
  void* stream_ = nullptr;
};

// A mark in a stream that the host and other streams can wait for.
class StreamMark {
 public:
  StreamMark() = default;
  explicit StreamMark(Device device);
  ~StreamMark();
  StreamMark(StreamMark&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  StreamMark& operator=(StreamMark&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  StreamMark(const StreamMark&) = delete;
  StreamMark& operator=(const StreamMark&) = delete;

  void record(void* stream);
  void wait() const;              // for what was recorded last; at once when nothing was
  void hold(void* stream) const;  // what `stream` is given from now on waits for it, the host does not

 private:
  void* event_ = nullptr;  // cudaEvent_t
};

// Work of a stream, recorded once and then started with one call. Everything it touches stays where it is.
class Graph {
 public:
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  explicit operator bool() const { return graph_ != nullptr; }
  // What `work` puts into the stream, which must be kernels and copies on the device only.
  template <class Work>
  static Graph record(void* stream, Work&& work) {
    begin(stream);
    try {
      work();
    } catch (...) {
      end(stream);
      throw;
    }
    return end(stream);
  }
  void launch(void* stream) const;

 private:
  static void begin(void* stream);
  static Graph end(void* stream);

  void* graph_ = nullptr;  // cudaGraphExec_t
};

}  // namespace medley
