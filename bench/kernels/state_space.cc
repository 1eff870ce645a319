#include "kernels/state_space.h"

#include "kernels/linear_attention.h"

#include "bench.h"
#include "core/kv_cache_spec.h"

namespace medley::bench {
namespace {

// `rows` requests of `fresh` new tokens each, every one with a state of `bytes`.
struct Step {
  Buffer offsets, computed, states;
  std::vector<int32_t> slots;
  RaggedRows rows;
  StateSlots state;

  Step(int64_t num_rows, int64_t fresh, int64_t bytes)
      : offsets(size_t(num_rows + 1) * 4), computed(size_t(num_rows) * 4) {
    const int64_t unit = (bytes + state_granule - 1) / state_granule;
    states = random_buffer(DType::f32, num_rows * unit * state_granule / 4);
    for (int64_t r = 0; r <= num_rows; ++r) reinterpret_cast<int32_t*>(offsets.data())[r] = int32_t(r * fresh);
    for (int64_t r = 0; r < num_rows; ++r) {
      reinterpret_cast<int32_t*>(computed.data())[r] = 1;
      slots.push_back(int32_t(r * unit));
    }
    rows = {offsets.view(DType::i32, {num_rows + 1}),
            computed.view(DType::i32, {num_rows}),
            num_rows,
            num_rows * fresh,
            fresh,
            fresh + 1};
    state = {states.data(), slots.data(), slots.data(), 0};
  }
};

void one_selective(Bench& bench, int64_t rows, int64_t fresh) {
  const std::string name = fmt::format("selective_scan 8192x16 {} rows of {}", rows, fresh);
  if (!bench.wanted(name)) return;
  constexpr int64_t channels = 8192, n = 16;
  const int64_t tokens = rows * fresh;
  const auto kernel = bench.selector.resolve(selective_scan_op(), SelectiveScanDesc{channels, n, DType::f32});
  Step step(rows, fresh, channels * n * 4);
  const Buffer x = random_buffer(DType::f32, tokens * channels), dt = random_buffer(DType::f32, tokens * channels),
               z = random_buffer(DType::f32, tokens * channels), b = random_buffer(DType::f32, tokens * n),
               c = random_buffer(DType::f32, tokens * n), a = random_buffer(DType::f32, channels * n),
               d = random_buffer(DType::f32, channels), y(size_t(tokens * channels) * 4);
  for (int64_t i = 0; i < channels * n; ++i) {
    float& value = reinterpret_cast<float*>(a.data())[i];
    value = -std::abs(value) - 0.1f;
  }
  SelectiveScanArgs args;
  args.x = x.view(DType::f32, {tokens, channels});
  args.dt = dt.view(DType::f32, {tokens, channels});
  args.z = z.view(DType::f32, {tokens, channels});
  args.b = b.view(DType::f32, {tokens, n});
  args.c = c.view(DType::f32, {tokens, n});
  args.a = reinterpret_cast<const float*>(a.data());
  args.d = reinterpret_cast<const float*>(d.data());
  args.dt_bias = args.d;
  args.rows = step.rows;
  args.state = step.state;
  args.y = y.view(DType::f32, {tokens, channels});
  // A state costs an exponential, counted as 10 operations, and 5 more; a token 4 floats a channel of memory.
  const double states = double(tokens) * channels * n;
  if (fresh == 1) {
    bench.report(name, kernel.name, double(rows) * channels * (n * 8 + n * 4 + 16), bench.ceilings.read_bytes, "GB/s",
                 [&] { kernel(args, bench.context); });
  } else {
    bench.report(name, kernel.name, states * 15, bench.ceilings.f32_flops, "GFLOP/s",
                 [&] { kernel(args, bench.context); });
  }
}

void one_ssd(Bench& bench, int64_t rows, int64_t fresh) {
  const std::string name = fmt::format("ssd_scan 80x64x128 {} rows of {}", rows, fresh);
  if (!bench.wanted(name)) return;
  constexpr int64_t heads = 80, dim = 64, n = 128;
  const int64_t tokens = rows * fresh;
  const auto kernel = bench.selector.resolve(ssd_scan_op(), SsdScanDesc{heads, dim, n, 1});
  Step step(rows, fresh, heads * dim * n * 4);
  const Buffer x = random_buffer(DType::f32, tokens * heads * dim), dt = random_buffer(DType::f32, tokens * heads),
               b = random_buffer(DType::f32, tokens * n), c = random_buffer(DType::f32, tokens * n), a(heads * 4),
               d = random_buffer(DType::f32, heads), y(size_t(tokens * heads * dim) * 4);
  for (int64_t h = 0; h < heads; ++h) reinterpret_cast<float*>(a.data())[h] = -0.5f;
  SsdScanArgs args;
  args.x = x.view(DType::f32, {tokens, heads, dim});
  args.dt = dt.view(DType::f32, {tokens, heads});
  args.b = b.view(DType::f32, {tokens, 1, n});
  args.c = c.view(DType::f32, {tokens, 1, n});
  args.a = reinterpret_cast<const float*>(a.data());
  args.d = reinterpret_cast<const float*>(d.data());
  args.dt_bias = args.d;
  args.dt_max = 1e9f;
  args.rows = step.rows;
  args.state = step.state;
  args.y = y.view(DType::f32, {tokens, heads, dim});
  if (fresh == 1) {
    bench.report(name, kernel.name, double(rows) * heads * dim * n * 8, bench.ceilings.read_bytes, "GB/s",
                 [&] { kernel(args, bench.context); });
  } else {
    bench.report(name, kernel.name, double(tokens) * heads * dim * n * 5, bench.ceilings.f32_flops, "GFLOP/s",
                 [&] { kernel(args, bench.context); });
  }
}

void one_conv(Bench& bench, int64_t rows, int64_t fresh) {
  const std::string name = fmt::format("causal_conv1d 8192x4 {} rows of {}", rows, fresh);
  if (!bench.wanted(name)) return;
  constexpr int64_t channels = 8192, width = 4;
  const int64_t tokens = rows * fresh;
  const auto kernel = bench.selector.resolve(causal_conv_op(), CausalConvDesc{channels, width});
  Step step(rows, fresh, conv_state_bytes(channels, width));
  const Buffer x = random_buffer(DType::f32, tokens * channels), weight = random_buffer(DType::f32, channels * width),
               y(size_t(tokens * channels) * 4);
  CausalConvArgs args;
  args.x = x.view(DType::f32, {tokens, channels});
  args.weight = reinterpret_cast<const float*>(weight.data());
  args.bias = args.weight;
  args.width = width;
  args.rows = step.rows;
  args.state = step.state;
  args.y = y.view(DType::f32, {tokens, channels});
  bench.report(name, kernel.name, double(tokens) * channels * 8, bench.ceilings.read_bytes, "GB/s",
               [&] { kernel(args, bench.context); });
}

// 32 heads of 128 x 128 as Qwen3-Next's (with a decay per channel: Kimi Linear's), 16 key heads or one a head.
void one_delta(Bench& bench, int64_t rows, int64_t fresh, bool per_channel) {
  const std::string name =
      fmt::format("gated_delta 32x128x128{} {} rows of {}", per_channel ? " by channel" : "", rows, fresh);
  if (!bench.wanted(name)) return;
  constexpr int64_t heads = 32, dim = 128;
  const int64_t tokens = rows * fresh, key_heads = per_channel ? 32 : 16, decays = per_channel ? dim : 1;
  const auto kernel = bench.selector.resolve(gated_delta_op(), GatedDeltaDesc{heads, key_heads, dim, dim, per_channel});
  Step step(rows, fresh, heads * dim * dim * 4);
  const Buffer q = random_buffer(DType::f32, tokens * key_heads * dim),
               k = random_buffer(DType::f32, tokens * key_heads * dim),
               v = random_buffer(DType::f32, tokens * heads * dim),
               dt = random_buffer(DType::f32, tokens * heads * decays),
               beta = random_buffer(DType::f32, tokens * heads), bias = random_buffer(DType::f32, heads * decays),
               a(heads * 4), y(size_t(tokens * heads * dim) * 4);
  for (int64_t h = 0; h < heads; ++h) reinterpret_cast<float*>(a.data())[h] = -0.5f;
  GatedDeltaArgs args;
  args.q = q.view(DType::f32, {tokens, key_heads, dim});
  args.k = k.view(DType::f32, {tokens, key_heads, dim});
  args.v = v.view(DType::f32, {tokens, heads, dim});
  args.dt = dt.view(DType::f32, {tokens, heads, decays});
  args.beta = beta.view(DType::f32, {tokens, heads});
  args.a = reinterpret_cast<const float*>(a.data());
  args.dt_bias = reinterpret_cast<const float*>(bias.data());
  args.rows = step.rows;
  args.state = step.state;
  args.y = y.view(DType::f32, {tokens, heads, dim});
  if (fresh == 1) {
    bench.report(name, kernel.name, double(rows) * heads * dim * dim * 8, bench.ceilings.read_bytes, "GB/s",
                 [&] { kernel(args, bench.context); });
  } else {  // a state costs a product, three sums of products
    bench.report(name, kernel.name, double(tokens) * heads * dim * dim * 7, bench.ceilings.f32_flops, "GFLOP/s",
                 [&] { kernel(args, bench.context); });
  }
}

}  // namespace

void bench_state_space(Bench& bench) {
  for (auto [rows, fresh] : {std::pair<int64_t, int64_t>{1, 256}, {16, 1}}) {
    one_selective(bench, rows, fresh);
    one_ssd(bench, rows, fresh);
    one_conv(bench, rows, fresh);
    for (const bool per_channel : {false, true}) one_delta(bench, rows, fresh, per_channel);
  }
}

}  // namespace medley::bench
