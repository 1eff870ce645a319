#include "tensor/workspace.h"

#include <algorithm>

#include "tensor/device_memory.h"

namespace medley {

TensorView Workspace::alloc(DType dtype, std::initializer_list<int64_t> shape) {
  TensorView view(nullptr, dtype, shape, device_);
  const size_t bytes = (view.bytes() + 63) / 64 * 64;
  // Blocks grow; one that is too small for this request is skipped until its scope ends.
  constexpr size_t smallest_block = size_t(1) << 20;
  while (mark_.block < blocks_.size() && mark_.used + bytes > blocks_[mark_.block].bytes()) {
    ++mark_.block;
    mark_.used = 0;
  }
  if (mark_.block == blocks_.size()) blocks_.emplace_back(std::max({bytes, smallest_block, capacity()}), device_);
  view.data = blocks_[mark_.block].data() + mark_.used;
  mark_.used += bytes;
#ifndef NDEBUG
  fill_bytes(view.data, 0xff, bytes, device_);
#endif
  return view;
}

size_t Workspace::capacity() const {
  size_t total = 0;
  for (const Buffer& block : blocks_) total += block.bytes();
  return total;
}

}  // namespace medley
