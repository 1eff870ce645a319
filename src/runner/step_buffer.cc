#include "runner/step_buffer.h"

#include <algorithm>

namespace medley {

bool StepBuffer::begin(size_t bytes) {
  sent_.wait();
  used_ = 0;
  if (bytes <= host_.bytes()) return false;
  const size_t capacity = std::max(bytes, 2 * host_.bytes());
  host_ = PinnedBuffer(capacity, device_);
  if (device_ != Device::cpu) memory_ = Buffer(capacity, device_);
  return true;
}

size_t StepBuffer::take(size_t bytes) {
  const size_t at = used_;
  used_ += (bytes + alignment - 1) / alignment * alignment;
  MEDLEY_CHECK(used_ <= host_.bytes());
  return at;
}

void StepBuffer::send(void* stream) {
  if (device_ == Device::cpu) return;
  copy_async(memory_.data(), host_.data(), used_, stream);
  sent_.record(stream);
}

}  // namespace medley
