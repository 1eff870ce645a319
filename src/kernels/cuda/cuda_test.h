// What the CUDA tests share: host tensors that start random or poisoned, their copies on the device, and the
// comparison.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/kv_cache_spec.h"
#include "kernels/op.h"
#include "kernels/rows.h"
#include "tensor/device_memory.h"

namespace medley::test {

// Distance from the reference over its norm. float32 sums in another order stay far below the first; the second allows
// operands rounded to bf16 (2^-9 each), the third an output rounded to bf16 once more.
constexpr double f32_error = 2e-6, bf16_operands_error = 4e-3, bf16_output_error = 2.5e-3;

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_missing(); !missing.empty()) GTEST_SKIP() << missing;
  }

  // Host memory ---------------------------------------------------------------------------------------------------
  TensorView make(DType dtype, std::initializer_list<int64_t> shape) {
    host_.emplace_back(std::max<size_t>(TensorView(nullptr, dtype, shape).bytes(), 1));
    return host_.back().view(dtype, shape);
  }
  TensorView random(DType dtype, std::initializer_list<int64_t> shape, float scale = 1) {
    TensorView view = make(dtype, shape);
    std::normal_distribution<float> normal(0, scale);
    for (int64_t i = 0; i < view.elements(); ++i) put(view, i, normal(engine_));
    return view;
  }
  TensorView poisoned(DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view = make(dtype, shape);
    std::memset(view.data, 0xff, view.bytes());
    return view;
  }
  TensorView ints(const std::vector<int32_t>& values) {
    TensorView view = make(DType::i32, {int64_t(values.size())});
    std::copy(values.begin(), values.end(), view.as<int32_t>());
    return view;
  }
  static void put(const TensorView& view, int64_t i, float value) {
    if (view.dtype == DType::f32) view.as<float>()[i] = value;
    if (view.dtype == DType::bf16) view.as<bf16>()[i] = bf16(value);
    if (view.dtype == DType::f16) view.as<f16>()[i] = f16(value);
  }
  static float at(const TensorView& view, int64_t i) {
    return view.dtype == DType::f32 ? view.as<float>()[i] : float(view.as<bf16>()[i]);
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

  // Device memory -------------------------------------------------------------------------------------------------
  // A copy of whatever a view spans, with its strides.
  TensorView up(const TensorView& view) {
    TensorView copy = view;
    copy.device = Device::cuda;
    if (view.data == nullptr) return copy;
    int64_t span = 1;
    for (int d = 0; d < view.rank; ++d) span += (std::max<int64_t>(view.shape[d], 1) - 1) * view.strides[d];
    copy.data = up_bytes(view.data, size_t(span) * size_of(view.dtype));
    return copy;
  }
  template <class T>
  const T* up(const TensorView& view, const T*) {
    return view.data == nullptr ? nullptr : static_cast<const T*>(up(view).data);
  }
  std::byte* up_bytes(const void* data, size_t bytes) {
    device_.emplace_back(std::max<size_t>(bytes, 1), Device::cuda);
    copy_bytes(device_.back().data(), data, bytes);
    return device_.back().data();
  }
  // A contiguous device view's contents.
  TensorView down(const TensorView& view) {
    host_.emplace_back(std::max<size_t>(view.bytes(), 1));
    copy_bytes(host_.back().data(), view.data, view.bytes());
    return TensorView(host_.back().data(), view.dtype, std::span(view.shape.data(), size_t(view.rank)));
  }

  template <class Desc, class Args>
  void run_host(const Op<Desc, Args>& op, const Desc& desc, const Args& args) {
    KernelSelector(Device::cpu, Level::ref).resolve(op, desc)(args, host_context_);
  }
  template <class Desc, class Args>
  std::string run_device(const Op<Desc, Args>& op, const Desc& desc, const Args& args, Level level = Level::cuda) {
    const auto kernel = KernelSelector(Device::cuda, level).resolve(op, desc);
    kernel(args, device_context_);
    synchronize();
    return std::string(kernel.name);
  }

  static double error(const TensorView& got, const TensorView& want) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < want.elements(); ++i) {
      const double g = at(got, i), w = at(want, i);
      difference += (g - w) * (g - w);
      norm += w * w;
    }
    const double ratio = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
    return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
  }
  static bool same_bits(const TensorView& a, const TensorView& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
  }

  std::mt19937 engine_{20};
  std::vector<Buffer> host_, device_;
  ThreadPool pool_{0};
  Workspace host_workspace_, device_workspace_{Device::cuda};
  ExecContext host_context_{pool_, host_workspace_}, device_context_{pool_, device_workspace_};
};

class CudaStateTest : public CudaTest {
 protected:
  static constexpr int64_t row_count = 5;

  // Five rows: no state before; in place; nothing written; one token; no token. Fills `states` at random.
  void rows(int64_t bytes, RaggedRows& host_rows, StateSlots& slots, TensorView& states, RaggedRows& device_rows,
            StateSlots& device_slots, TensorView& device_states) {
    const int32_t granules = int32_t((bytes + state_granule - 1) / state_granule);
    states = random(DType::f32, {7 * granules * state_granule / 4});
    const TensorView offsets = ints({0, 9, 13, 16, 17, 17}), computed = ints({0, 4, 4, 4, 4});
    const TensorView read = ints({-1, granules, 2 * granules, 3 * granules, 5 * granules});
    const TensorView write = ints({0, granules, -1, 4 * granules, 6 * granules});
    host_rows = {offsets, computed, row_count, 17, 9, 13};
    slots = {static_cast<std::byte*>(states.data), read.as<int32_t>(), write.as<int32_t>(), 0};
    device_rows = host_rows, device_slots = slots;
    device_rows.row_offsets = up(offsets), device_rows.computed = up(computed);
    device_states = up(states);
    device_slots.base = static_cast<std::byte*>(device_states.data);
    device_slots.read = up(read, slots.read), device_slots.write = up(write, slots.write);
  }
};

}  // namespace medley::test
