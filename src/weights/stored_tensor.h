// A tensor as a checkpoint's file holds it, whatever the file's format.
#pragma once

#include <span>
#include <string>

#include "tensor/tensor.h"

namespace medley {

struct StoredTensor {
  std::string dtype_name;  // as the file spells it: "BF16", "Q4_K"
  bool readable = false;   // a dtype medley has; `view` is valid only then
  TensorView view;         // into the mapping, read-only
  std::span<const std::byte> bytes;
};

}  // namespace medley
