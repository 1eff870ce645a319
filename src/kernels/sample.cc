#include "kernels/sample.h"

namespace medley {

void take_tokens(const TakeTokensArgs& a, ExecContext& exec) {
  MEDLEY_CHECK(a.ids.elements() == a.from.elements() && a.ids.device == a.last.device);
  if (a.ids.device == Device::cuda) return cuda::take_tokens(a, exec);
  for (int64_t i = 0; i < a.ids.elements(); ++i)
    if (const int32_t slot = a.from.as<int32_t>()[i]; slot >= 0) a.ids.as<int32_t>()[i] = a.last.as<int32_t>()[slot];
}

}  // namespace medley
