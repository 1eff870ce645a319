// What layers ask of the ranks they are spread over. One rank is SelfComm, a true identity.
#pragma once

#include <memory>

#include "tensor/tensor.h"

namespace medley {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // data[i] = sum over ranks, in rank order, of data[i]; f32, in place.
  virtual void all_reduce(const TensorView& data) = 0;
  // out = the ranks' `in` side by side along the last dimension, in rank order.
  virtual void all_gather(const TensorView& in, const TensorView& out) = 0;
};

std::unique_ptr<Communicator> make_self_comm();

}  // namespace medley
