#include "base/error.h"
#include "cli/kernel_bench.h"
#include "tensor/device_memory.h"

namespace medley::cli {

std::vector<std::string> kernel_kinds() {
  return {};
}

void bench_cuda_kernels(const KernelBenchOptions&) {
  throw Error(cuda_missing());
}

}  // namespace medley::cli
