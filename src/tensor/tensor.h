// TensorView, a copyable view of memory somebody else owns, and Buffer, the only owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/error.h"

namespace medley {

enum class Device : uint8_t { cpu, cuda };

std::string_view name_of(Device device);

constexpr int max_rank = 4;

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Device device = Device::cpu;
  int rank = 0;
  std::array<int64_t, max_rank> shape{};    // in elements
  std::array<int64_t, max_rank> strides{};  // in elements

  TensorView() = default;
  // A contiguous (row-major) view.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape, Device device = Device::cpu);
  TensorView(void* data, DType dtype, std::span<const int64_t> shape, Device device = Device::cpu);

  int64_t size(int dim) const { return shape[dim]; }
  int64_t elements() const;
  size_t bytes() const { return size_t(elements()) * size_of(dtype); }  // of a contiguous copy
  bool contiguous() const;
  explicit operator bool() const { return data != nullptr; }

  // Rows [begin, begin + count) of dimension `dim`, sharing memory.
  TensorView slice(int dim, int64_t begin, int64_t count) const;
  // The same elements under another shape. The view must be contiguous.
  TensorView reshape(std::initializer_list<int64_t> shape) const;

  // [..., outer * inner] seen as [..., outer, inner]; the last dimension must be contiguous.
  TensorView split_last(int64_t outer, int64_t inner) const;

  // The elements as T. MEDLEY_CHECKs the dtype.
  template <class T>
  T* as() const;
  // Pointer to row `index` of the first dimension.
  template <class T>
  T* row(int64_t index) const {
    return as<T>() + index * strides[0];
  }
  std::string describe() const;  // "bf16 [3, 64]"
};

std::string describe_shape(std::span<const int64_t> shape);  // "[3, 64]"

namespace detail {
void count_allocation();

template <class T>
constexpr bool holds(DType dtype) {
  if constexpr (std::is_same_v<T, float>) return dtype == DType::f32;
  if constexpr (std::is_same_v<T, bf16>) return dtype == DType::bf16;
  if constexpr (std::is_same_v<T, f16>) return dtype == DType::f16;
  if constexpr (std::is_same_v<T, int32_t>) return dtype == DType::i32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::i64;
  if constexpr (std::is_same_v<T, uint8_t>) return dtype == DType::u8;
  return std::is_same_v<T, std::byte>;
}
}  // namespace detail

template <class T>
T* TensorView::as() const {
  MEDLEY_CHECK(detail::holds<std::remove_const_t<T>>(dtype));
  return static_cast<T*>(data);
}

// How many times this process has taken memory for a Buffer or a PinnedBuffer: a test holds it against a running
// engine, whose steps must take none.
int64_t allocations();

// Owns memory of the host (64-byte aligned) or of the CUDA device (256). Contents start undefined; debug builds fill it
// with NaN bits, so that a read of memory nothing wrote shows.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes, Device device = Device::cpu);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  TensorView view(DType dtype, std::initializer_list<int64_t> shape) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_ = Device::cpu;
};

}  // namespace medley
