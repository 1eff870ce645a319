// The tensor types that GGUF files know, by number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace medley {

struct GgufTensorType {
  uint32_t id;
  std::string_view name;
  int64_t elements, bytes;     // of a block
  std::optional<DType> dtype;  // none: medley cannot read it
};

const GgufTensorType* find_gguf_tensor_type(uint32_t id);  // null: a number nobody has given yet

}  // namespace medley
