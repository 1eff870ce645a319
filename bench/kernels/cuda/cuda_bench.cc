// medley bench kernels: times CUDA kernels on the device it finds. Cold L2, random data, medians; a kernel that is not
// the portable one is compared with it before it is timed, but for the largest cases. The limit is the bytes and
// operations that the case cannot avoid, over the rates that the same run measured.
#include "cli/kernel_bench.h"

#include "cuda_bench.h"
#include "kernels/pointwise.h"

namespace medley::bench {
namespace {

void ceilings(Bench& bench) {
  {
    const TensorView from = bench.random(DType::f32, {int64_t(1) << 28}),
                     to = bench.alloc(DType::f32, {int64_t(1) << 28});
    const double us =
        bench.median_us([&] { must(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice)); });
    bench.bytes_per_us = 2.0 * double(from.bytes()) / us;
    fmt::print("copy of 1 GiB: {:.0f} GB/s read and written\n", bench.bytes_per_us / 1e3);
    bench.buffers.clear();
  }
  const TensorView one = bench.random(DType::f32, {1, 1});
  const auto kernel = KernelSelector(Device::cuda).resolve(add_op(), {});
  fmt::print("one launch of next to nothing: {:.1f} us\n",
             bench.median_us([&] { kernel({.x = one, .y = one}, bench.context); }));
  bench.buffers.clear();
}

struct Kind {
  const char* name;
  void (*run)(Bench&);
};
constexpr Kind kinds[] = {{"attention", attention}, {"linear", linear}, {"experts", experts}, {"states", states}};

}  // namespace
}  // namespace medley::bench

namespace medley::cli {

std::vector<std::string> kernel_kinds() {
  std::vector<std::string> names;
  for (const bench::Kind& kind : bench::kinds) names.emplace_back(kind.name);
  return names;
}

void bench_cuda_kernels(const KernelBenchOptions& options) {
  if (const std::string missing = cuda_missing(); !missing.empty()) throw Error(missing);
  bench::Bench bench(options.peers);
  fmt::print("{}\n", device_info().name);
  bench::ceilings(bench);
  for (const bench::Kind& kind : bench::kinds)
    if (options.kinds.empty() ||
        std::find(options.kinds.begin(), options.kinds.end(), kind.name) != options.kinds.end())
      kind.run(bench);
}

}  // namespace medley::cli
