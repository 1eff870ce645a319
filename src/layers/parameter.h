// Small arrays that kernels take as plain pointers: biases, norms' weights, decays, tables. Their values are worked out
// on the host while a model loads and then lie where its kernels run, so that a layer need not know where that is.
#pragma once

#include <vector>

#include "layers/load_context.h"
#include "tensor/device_memory.h"

namespace medley {

template <class T>
class ParameterArray {
 public:
  ParameterArray() = default;
  ParameterArray(const LoadContext& context, const std::vector<T>& values) : size_(int64_t(values.size())) {
    if (values.empty() || context.weights.planning()) return;
    const size_t bytes = values.size() * sizeof(T);
    storage_ = Buffer(bytes, context.kernels.device());
    copy_bytes(storage_.data(), values.data(), bytes);
  }

  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  // Null when empty, as kernels take what is not there.
  const T* data() const { return reinterpret_cast<const T*>(storage_.data()); }

 private:
  Buffer storage_;
  int64_t size_ = 0;
};

using Parameter = ParameterArray<float>;

// A stored tensor, or the rank's part of it, in float32.
inline Parameter take_parameter(LoadContext& context, const std::string& name, const std::vector<int64_t>& shape,
                                const Slice& slice = {}) {
  return {context, context.weights.take_floats(name, shape, slice)};
}

}  // namespace medley
