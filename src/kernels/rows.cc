#include "kernels/rows.h"

namespace medley {

void rebase_offsets(const TensorView& offsets, const TensorView& y, ExecContext& exec) {
  MEDLEY_CHECK(offsets.elements() == y.elements() && offsets.device == y.device);
  if (y.device == Device::cuda) return cuda::rebase_offsets(offsets, y, exec);
  const int32_t* from = offsets.as<int32_t>();
  for (int64_t r = 0; r < y.size(0); ++r) y.as<int32_t>()[r] = from[r] - from[0];
}

}  // namespace medley
