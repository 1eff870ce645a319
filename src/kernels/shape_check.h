// Checks of an op's arguments, with messages that open with the op's name.
#pragma once

#include <initializer_list>
#include <string_view>

#include "tensor/tensor.h"

namespace medley {

// Throws Error "[op] name is bf16 [3, 4], want f32 [tokens, 5]" unless `view` has this shape (-1: any) and one of the
// dtypes, and its last dimension is contiguous.
void check_tensor(std::string_view op, std::string_view name, const TensorView& view,
                  std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes);

}  // namespace medley
