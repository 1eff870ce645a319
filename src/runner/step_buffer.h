// The tables of a step (ids, positions, block tables, ...): filled on the host one after the other, brought to the
// device by one asynchronous copy. Tables of the same sizes, added in the same order, lie at the same addresses in
// every step, which is what a recorded graph relies on. On the CPU the host's memory is the device's. Beside a device
// there are two buffers of the host in turns: tables of the next step are filled while those of this one may still wait
// for their copy.
#pragma once

#include <span>

#include "tensor/device_memory.h"

namespace medley {

class StepBuffer {
 public:
  explicit StepBuffer(Device device) : device_(device), sent_{StreamMark(device), StreamMark(device)} {}

  // Starts a step whose tables take at most `bytes`, alignment included. True when memory had to be taken, so that
  // addresses have changed. Waits for the copy of the step before the last.
  bool begin(size_t bytes);

  template <class T>
  struct Table {
    std::span<T> values;  // to be filled before send()
    TensorView view;      // on the device
  };
  Table<int32_t> add_i32(std::initializer_list<int64_t> shape) { return add<int32_t>(DType::i32, shape); }
  Table<int64_t> add_i64(std::initializer_list<int64_t> shape) { return add<int64_t>(DType::i64, shape); }

  void send(void* stream);

  static constexpr size_t alignment = 256;  // of every table

 private:
  template <class T>
  Table<T> add(DType dtype, std::initializer_list<int64_t> shape) {
    TensorView view(nullptr, dtype, shape, device_);
    const size_t at = take(view.bytes());
    view.data = (device_ == Device::cpu ? host_[turn_].data() : memory_.data()) + at;
    return {{reinterpret_cast<T*>(host_[turn_].data() + at), size_t(view.elements())}, view};
  }
  size_t take(size_t bytes);

  Device device_;
  PinnedBuffer host_[2];
  Buffer memory_;  // on a device other than the CPU
  size_t used_ = 0, capacity_ = 0;
  int turn_ = 0;
  StreamMark sent_[2];
};

}  // namespace medley
