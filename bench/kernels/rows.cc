#include "bench.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/rope.h"

namespace medley::bench {

// Shares are of reading memory: these ops also write, and may find their rows in a cache.
void bench_rows(Bench& bench) {
  constexpr int64_t tokens = 512, dim = 4096;
  const Buffer x = random_buffer(DType::f32, tokens * 2 * dim), y(size_t(tokens * dim) * 4);
  const Buffer weight = random_buffer(DType::f32, dim), table = random_buffer(DType::f32, tokens * 128);
  for (DType type : {DType::f32, DType::bf16}) {
    const double bytes = double(tokens * dim) * (4 + double(size_of(type)));
    RmsNormArgs norm;
    norm.x = x.view(DType::f32, {tokens, dim});
    norm.weight = reinterpret_cast<const float*>(weight.data());
    norm.eps = 1e-6f;
    norm.y = y.view(type, {tokens, dim});
    const auto kernel = bench.selector.resolve(rms_norm_op(), RmsNormDesc{dim, type});
    bench.report(fmt::format("rms_norm 512x4096 y {}", name_of(type)), kernel.name, bytes, bench.ceilings.read_bytes,
                 "GB/s", [&] { kernel(norm, bench.context); });
    const GatedActivationArgs act{x.view(DType::f32, {tokens, 2 * dim}), Activation::silu, true,
                                  y.view(type, {tokens, dim})};
    const auto gated =
        bench.selector.resolve(gated_activation_op(), GatedActivationDesc{dim, Activation::silu, true, type});
    bench.report(fmt::format("gated silu 512x4096 y {}", name_of(type)), gated.name, bytes + 4.0 * double(tokens * dim),
                 bench.ceilings.read_bytes, "GB/s", [&] { gated(act, bench.context); });
  }
  for (bool interleaved : {false, true}) {
    const RopeArgs args{y.view(DType::f32, {tokens, 32, 128}), table.view(DType::f32, {tokens, 128}), interleaved};
    const auto kernel = bench.selector.resolve(rope_op(), RopeDesc{64, interleaved});
    bench.report(fmt::format("rope 512x32x128{}", interleaved ? " interleaved" : ""), kernel.name,
                 double(tokens * dim) * 8, bench.ceilings.read_bytes, "GB/s", [&] { kernel(args, bench.context); });
  }
}

}  // namespace medley::bench
