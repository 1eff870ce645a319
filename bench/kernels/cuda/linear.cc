// Dense products.
#include "kernels/linear.h"

#include "cuda_bench.h"

namespace medley::bench {
namespace {

void dense(Bench& bench, int64_t tokens, int64_t n, int64_t k) {
  const TensorView w = bench.random(DType::bf16, {n, k});
  const LinearArgs a{.x = bench.random(DType::bf16, {tokens, k}),
                     .weight = {.data = static_cast<std::byte*>(w.data), .n = n, .k = k},
                     .y = bench.alloc(DType::f32, {tokens, n})};
  const auto kernel = KernelSelector(Device::cuda).resolve(linear_op(), {k, n, DType::bf16, DType::bf16});
  LinearArgs reference = a;
  reference.y = bench.alloc(DType::f32, {tokens, n});
  kernel(a, bench.context);
  KernelSelector(Device::cuda, Level::cuda)
      .resolve(linear_op(), {k, n, DType::bf16, DType::bf16})(reference, bench.context);
  bench.report(
      fmt::format("{} {} x [{}, {}]", kernel.name, tokens, n, k), [&] { kernel(a, bench.context); },
      double(w.bytes() + a.x.bytes() + a.y.bytes()), 2.0 * double(tokens * n * k), relative_error(a.y, reference.y),
      fmt::format("linear {} {} {}", tokens, n, k));
  bench.buffers.clear();
}

}  // namespace

void linear(Bench& bench) {
  for (int64_t tokens : {1, 8, 16, 32, 64, 128, 256, 512, 2048, 4096}) dense(bench, tokens, 4096, 4096);
  for (int64_t tokens : {1, 128, 4096}) dense(bench, tokens, 28672, 4096);
  for (int64_t tokens : {1, 128, 4096}) dense(bench, tokens, 4096, 14336);
  for (int64_t tokens : {1, 128, 4096}) dense(bench, tokens, 2048, 2048);
  for (int64_t tokens : {1, 128}) dense(bench, tokens, 576, 2048);
  for (int64_t tokens : {1, 128}) dense(bench, tokens, 102400, 2048);
}

}  // namespace medley::bench
