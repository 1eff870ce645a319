// How kernels are launched so that one starts while the one before it ends (programmatic dependent launch: CUDA C++
// Programming Guide, "Programmatic Dependent Launch and Synchronization"). A decode step is hundreds of kernels of a
// few microseconds, of which the way in (code, arguments, first loads) is a good part.
//
// The rules for a kernel that launch_kernel() starts. Every block calls wait_for_previous(). Before, it touches nothing
// but its arguments and what no kernel of a step writes: parameters and the step's own tables. The wait is also what
// makes the order of the stream hold: a kernel that ended without it would let the next one run beside the one before.
//
// let_next_start() says that blocks of the next kernel may take the room that is left: at the start where a kernel is
// small; in one that streams memory after its last loads, or the next one's first loads compete with them.
#pragma once

#include "kernels/cuda/common.h"

namespace medley::cuda {

__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until the kernels before are complete and what they wrote is seen.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// All that a small kernel without parameters has to say.
__device__ inline void follow_previous() {
  let_next_start();
  wait_for_previous();
}

__device__ inline void prefetch_to_l2(const void* line) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(line) : "memory");
}
// Multiples of 16 bytes at a multiple of 16.
__device__ inline void prefetch_to_l2(const void* first, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(first), "r"(bytes) : "memory");
#endif
}

// Whether this device runs the code that was compiled for Hopper. What the driver makes of the portable PTX, on other
// devices or where it is told to, has neither the wait nor clusters.
bool made_for_hopper();

struct Grid {
  dim3 blocks;
  dim3 threads;  // of a block
  size_t shared = 0;
  unsigned cluster = 1;  // blocks of a cluster, along x; more than one only where made_for_hopper()
};

template <class... Params, class... Args>
void launch_kernel(const char* op, void (*kernel)(Params...), const Grid& grid, ExecContext& context, Args... args) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {grid.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks, config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream_of(context);
  config.attrs = attributes;
  config.numAttrs = !made_for_hopper() ? 0 : grid.cluster > 1 ? 2 : 1;
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (status != cudaSuccess) fail("[{}] CUDA: {}", op, cudaGetErrorString(status));
}

}  // namespace medley::cuda
