#include "tensor/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

#include "tensor/device_memory.h"

namespace medley {
namespace {

std::atomic<int64_t> allocation_count{0};

}  // namespace

std::string_view name_of(Device device) {
  return device == Device::cpu ? "cpu" : "cuda";
}

int64_t allocations() {
  return allocation_count.load(std::memory_order_relaxed);
}

void detail::count_allocation() {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
}

TensorView::TensorView(void* data_in, DType dtype_in, std::span<const int64_t> dims, Device device_in)
    : data(data_in), dtype(dtype_in), device(device_in), rank(int(dims.size())) {
  MEDLEY_CHECK(rank <= max_rank);
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    shape[d] = dims[d];
    strides[d] = stride;
    stride *= dims[d];
  }
}

TensorView::TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> dims, Device device_in)
    : TensorView(data_in, dtype_in, std::span(dims.begin(), dims.size()), device_in) {}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= shape[d];
  return count;
}

bool TensorView::contiguous() const {
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != stride) return false;
    stride *= shape[d];
  }
  return true;
}

TensorView TensorView::slice(int dim, int64_t begin, int64_t count) const {
  MEDLEY_CHECK(dim < rank && begin >= 0 && count >= 0 && begin + count <= shape[dim]);
  TensorView part = *this;
  part.data = static_cast<std::byte*>(data) + begin * strides[dim] * int64_t(size_of(dtype));
  part.shape[dim] = count;
  return part;
}

TensorView TensorView::reshape(std::initializer_list<int64_t> dims) const {
  TensorView other(data, dtype, dims, device);
  MEDLEY_CHECK(contiguous() && other.elements() == elements());
  return other;
}

TensorView TensorView::split_last(int64_t outer, int64_t inner) const {
  MEDLEY_CHECK(rank > 0 && rank < max_rank && shape[rank - 1] == outer * inner && strides[rank - 1] == 1);
  TensorView other = *this;
  other.rank = rank + 1;
  other.shape[rank - 1] = outer;
  other.strides[rank - 1] = inner;
  other.shape[rank] = inner;
  other.strides[rank] = 1;
  return other;
}

std::string TensorView::describe() const {
  return fmt::format("{} {}", name_of(dtype), describe_shape({shape.data(), size_t(rank)}));
}

std::string describe_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Buffer::Buffer(size_t bytes, Device device) : bytes_(bytes), device_(device) {
  constexpr size_t alignment = 64;
  const size_t rounded = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  data_ = device == Device::cuda ? device_allocate(rounded)
                                 : static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (data_ == nullptr) throw std::bad_alloc();
  detail::count_allocation();
#ifndef NDEBUG
  constexpr size_t poisoned = size_t(64) << 20;  // not the whole of a large cache: its pages would all become real
  fill_bytes(data_, 0xff, std::min(rounded, poisoned), device);
#endif
}

Buffer::~Buffer() {
  if (device_ == Device::cuda) {
    device_free(data_);
  } else {
    std::free(data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), device_(other.device_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  return *this;
}

TensorView Buffer::view(DType dtype, std::initializer_list<int64_t> shape) const {
  TensorView whole(data_, dtype, shape, device_);
  MEDLEY_CHECK(whole.bytes() <= bytes_);
  return whole;
}

}  // namespace medley
