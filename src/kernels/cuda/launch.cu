// Which of the library's two codes the device runs.
#include "kernels/cuda/launch.h"

namespace medley::cuda {
namespace {

__global__ void probe() {}

}  // namespace

bool made_for_hopper() {
  static const bool found = [] {
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, probe) == cudaSuccess) return attributes.ptxVersion >= 90;
    (void)cudaGetLastError();
    return false;
  }();
  return found;
}

}  // namespace medley::cuda
