#include "runner/step_buffer.h"

#include <algorithm>

namespace medley {

bool StepBuffer::begin(size_t bytes) {
  if (device_ != Device::cpu) turn_ = 1 - turn_;
  sent_[turn_].wait();
  used_ = 0;
  if (bytes <= capacity_) return false;
  sent_[1 - turn_].wait();
  capacity_ = std::max(bytes, 2 * capacity_);
  for (PinnedBuffer& host : host_)
    if (device_ != Device::cpu || &host == host_) host = PinnedBuffer(capacity_, device_);
  if (device_ != Device::cpu) memory_ = Buffer(capacity_, device_);
  return true;
}

size_t StepBuffer::take(size_t bytes) {
  const size_t at = used_;
  used_ += (bytes + alignment - 1) / alignment * alignment;
  MEDLEY_CHECK(used_ <= capacity_);
  return at;
}

void StepBuffer::send(void* stream) {
  if (device_ == Device::cpu) return;
  if (used_ > 0) copy_async(memory_.data(), host_[turn_].data(), used_, stream);
  sent_[turn_].record(stream);
}

}  // namespace medley
