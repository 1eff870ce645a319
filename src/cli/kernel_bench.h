// Times kernels one by one. Builds without CUDA have no_kernel_bench.cc in place of bench/kernels/cuda.
#pragma once

#include <string>
#include <vector>

namespace medley::cli {

struct KernelBenchOptions {
  std::vector<std::string> kinds;  // of kernel_kinds(); empty: all
  std::string peers;               // command of a program that times others on the same cases; empty: none
};

std::vector<std::string> kernel_kinds();

// Prints what the device reaches, then a line for each case: time, limit, share, the peer's time. Throws Error when the
// device is missing, when a kernel differs from the portable one, or when the peers' program cannot be run.
void bench_cuda_kernels(const KernelBenchOptions& options);

}  // namespace medley::cli
