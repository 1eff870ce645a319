// Random numbers in place of weights, made where they are used: 31 GB take less than a second.
#include "kernels/cuda/common.h"
#include "kernels/random.h"

#include <algorithm>

namespace medley::cuda {
namespace {

template <class T>
__global__ void fill(T* data, int64_t count, uint64_t seed, float scale) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    store(data + i, random_element(seed, uint64_t(i)) * scale);
}

}  // namespace

void fill_random(const TensorView& view, uint64_t seed, float scale) {
  const int64_t count = view.elements();
  if (count == 0) return;
  constexpr int threads = 256;
  const unsigned blocks = unsigned(std::min<int64_t>(blocks_for(count, threads), 4096));
  with_float_type(view.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    fill<T><<<blocks, threads>>>(data_of<T>(view), count, seed, scale);
  });
  check_launch("fill_random");
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) fail("[fill_random] CUDA: {}", cudaGetErrorString(status));
}

}  // namespace medley::cuda
