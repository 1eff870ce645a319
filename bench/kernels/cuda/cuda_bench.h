// What the benchmarks of CUDA kernels share: random device tensors, a cold L2, medians, and the comparison with the
// portable kernel.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "kernels/linear.h"
#include "peer.h"
#include "tensor/device_memory.h"

namespace medley::bench {

inline void must(cudaError_t status) {
  if (status != cudaSuccess) fail("CUDA: {}", cudaGetErrorString(status));
}

struct Bench {
  explicit Bench(const std::string& peers) : peer(peers) {}

  Peer peer;
  ThreadPool pool{1};
  Workspace workspace{Device::cuda};
  ExecContext context{pool, workspace};
  std::vector<Buffer> buffers;
  Buffer flush{size_t(256) << 20, Device::cuda};  // several times the L2
  Buffer flush_x{size_t(64) << 10, Device::cuda}, flush_y{size_t(64) << 10, Device::cuda};
  double bytes_per_us = 0;
  size_t tensors = 0;

  TensorView alloc(DType dtype, std::initializer_list<int64_t> shape) {
    buffers.emplace_back(TensorView(nullptr, dtype, shape).bytes(), Device::cuda);
    return buffers.back().view(dtype, shape);
  }
  // Normal values; a block of a million of them, repeated at odd offsets, is random enough for a memory system.
  TensorView random(DType dtype, std::initializer_list<int64_t> shape, float scale = 1) {
    const TensorView view = alloc(dtype, shape);
    static std::vector<float> noise = [] {
      std::mt19937 engine(7);
      std::normal_distribution<float> normal;
      std::vector<float> values(1000003);
      for (float& value : values) value = normal(engine);
      return values;
    }();
    std::vector<bf16> narrow;
    std::vector<float> scaled;
    for (float value : noise) {
      if (dtype == DType::bf16) narrow.emplace_back(value * scale);
      if (dtype == DType::f32) scaled.push_back(value * scale);
    }
    const void* from = dtype == DType::bf16 ? static_cast<const void*>(narrow.data()) : scaled.data();
    const size_t chunk = noise.size() * size_of(dtype);
    const size_t skip = 7919 * ++tensors % 100000 * size_of(dtype);  // no two tensors start alike
    for (size_t at = 0; at < view.bytes(); at += chunk - skip)
      copy_bytes(static_cast<std::byte*>(view.data) + at, static_cast<const std::byte*>(from) + skip,
                 std::min(chunk - skip, view.bytes() - at));
    return view;
  }
  template <class T>
  TensorView values(DType dtype, const std::vector<T>& host, std::initializer_list<int64_t> shape) {
    const TensorView view = alloc(dtype, shape);
    copy_bytes(view.data, host.data(), host.size() * sizeof(T));
    return view;
  }

  // Reads more than the L2 holds: a cache full of written lines would make the timed kernel pay for their way out.
  void clear_cache() {
    static const auto kernel =
        KernelSelector(Device::cuda).resolve(linear_op(), {4096, 32768, DType::bf16, DType::bf16});
    kernel({.x = flush_x.view(DType::bf16, {1, 4096}),
            .weight = {.data = flush.data(), .n = 32768, .k = 4096},
            .y = flush_y.view(DType::bf16, {1, 32768})},
           context);
  }

  double median_us(const std::function<void()>& run, int repeats = 15) {
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin));
    must(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = -2; i < repeats; ++i) {
      clear_cache();
      must(cudaEventRecord(begin));
      run();
      must(cudaEventRecord(end));
      must(cudaEventSynchronize(end));
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 0) times.push_back(ms * 1000);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Times the case, lets the peer time its own (`twin`, peer.h), and times the case again: ours is the mean of the two
  // medians. `error`: distance from the portable kernel, where there is another one and it was run; NaN and more than
  // `max_error` fail the run.
  void report(const std::string& name, const std::function<void()>& run, double bytes, double operations,
              std::optional<double> error, const std::string& twin = {}, int repeats = 15) {
    constexpr double operations_per_us = 784e6;  // bf16 products of 8192^3 on this chip
    constexpr double max_error = 2e-2;           // outputs in bf16
    if (error && !(*error <= max_error)) fail("[bench] {}: {:.1e} from the portable kernel", name, *error);
    double us = median_us(run, repeats);
    const PeerTime other = peer.time(twin);
    if (other.us > 0) us = (us + median_us(run, repeats)) / 2;
    const double limit = std::max(bytes / bytes_per_us, operations / operations_per_us);
    fmt::print("{:46} {:9.1f} us  limit {:8.1f}  {:5.1f} %  {:6.0f} GB/s  {:5.0f} TFLOP/s  {}", name, us, limit,
               100 * limit / us, bytes / us / 1e3, operations / us / 1e6,
               error ? fmt::format("error {:.1e}", *error) : "not compared ");
    if (other.us > 0) fmt::print("  {}: {:.1f} us, {:.2f}x ours", other.who, other.us, other.us / us);
    if (other.us == 0 && !other.who.empty()) fmt::print("  no peer: {}", other.who);
    fmt::print("\n");
    std::fflush(stdout);
  }
};

inline double relative_error(const TensorView& got, const TensorView& want) {
  const auto floats = [](const TensorView& view) {
    std::vector<float> values(size_t(view.elements()));
    if (view.dtype == DType::f32) {
      copy_bytes(values.data(), view.data, view.bytes());
    } else {
      std::vector<bf16> narrow(values.size());
      copy_bytes(narrow.data(), view.data, view.bytes());
      for (size_t i = 0; i < values.size(); ++i) values[i] = float(narrow[i]);
    }
    return values;
  };
  const std::vector<float> g = floats(got), w = floats(want);
  double difference = 0, norm = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    difference += (double(g[i]) - w[i]) * (double(g[i]) - w[i]);
    norm += double(w[i]) * w[i];
  }
  return std::sqrt(difference / norm);
}

// One file each: kernels of one kind.
void attention(Bench& bench);
void linear(Bench& bench);
void experts(Bench& bench);
void states(Bench& bench);

}  // namespace medley::bench
