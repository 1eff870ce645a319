// Times CUDA kernels on the device it finds: cold L2, random data, medians, each case checked against the portable
// kernel before it is timed. Prints the bytes and operations that the case cannot avoid, over the rates that the same
// run measured. peers.py times PyTorch on the same shapes.
//   cuda_bench [attention] [linear] [experts] [states]      all of them when none is named
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

void run(const std::vector<std::string_view>& names) {
  Bench bench;
  ceilings(bench);
  const auto wanted = [&](std::string_view name) {
    return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
  };
  if (wanted("attention")) attention(bench);
  if (wanted("linear")) linear(bench);
  if (wanted("experts")) experts(bench);
  if (wanted("states")) states(bench);
}

}  // namespace
}  // namespace medley::bench

int main(int argc, char** argv) {
  try {
    medley::bench::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
