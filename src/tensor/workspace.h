// Activations of one step: a bump allocator over blocks that stay for the next step, so that a running engine
// allocates nothing. One per device and caller; not shared between threads.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace medley {

class Workspace {
  struct Mark {
    size_t block = 0, used = 0;
  };

 public:
  explicit Workspace(Device device = Device::cpu) : device_(device) {}

  // Contiguous, 64-byte aligned, undefined contents (NaN bits in debug builds). Valid until the scope it was
  // allocated in ends.
  TensorView alloc(DType dtype, std::initializer_list<int64_t> shape);

  // Frees on destruction what was allocated since its construction. Scopes nest.
  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.mark_) {}
    ~Scope() { workspace_.mark_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    Mark mark_;
  };

  size_t capacity() const;  // bytes held

 private:
  Device device_;
  std::vector<Buffer> blocks_;
  Mark mark_;
};

}  // namespace medley
