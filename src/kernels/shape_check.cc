#include "kernels/shape_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"

namespace medley {

void check_tensor(std::string_view op, std::string_view name, const TensorView& view,
                  std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes) {
  bool fits = view.rank == int(shape.size()) && std::find(dtypes.begin(), dtypes.end(), view.dtype) != dtypes.end();
  for (int d = 0; fits && d < view.rank; ++d) fits = shape.begin()[d] < 0 || view.shape[d] == shape.begin()[d];
  fits = fits && (view.elements() == 0 ||
                  (view.data != nullptr && (view.strides[view.rank - 1] == 1 || view.shape[view.rank - 1] == 1)));
  if (fits) return;
  std::vector<std::string> dims, types;
  for (int64_t dim : shape) dims.push_back(dim < 0 ? "any" : std::to_string(dim));
  for (DType dtype : dtypes) types.emplace_back(name_of(dtype));
  fail("[{}] {} is {}{}, want {} [{}]", op, name, view.describe(), view.data == nullptr ? " without memory" : "",
       join(types, " or "), join(dims, ", "));
}

}  // namespace medley
