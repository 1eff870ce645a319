// Row offsets of a part of a step.
#include "kernels/cuda/launch.h"
#include "kernels/rows.h"

namespace medley::cuda {
namespace {

__global__ void rebase(const int32_t* offsets, int32_t* y, int count) {
  follow_previous();
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = offsets[i] - offsets[0];
}

}  // namespace

void rebase_offsets(const TensorView& offsets, const TensorView& y, ExecContext& exec) {
  constexpr int threads = 256;
  const int64_t count = y.elements();
  launch_kernel("rebase_offsets", rebase, {blocks_for(count, threads), threads}, exec, data_of<int32_t>(offsets),
                data_of<int32_t>(y), int(count));
}

}  // namespace medley::cuda
