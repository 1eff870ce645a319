// Recurrent states: Mamba2 and the gated delta net.
#include "core/kv_cache_spec.h"
#include "cuda_bench.h"
#include "kernels/linear_attention.h"
#include "kernels/state_space.h"

namespace medley::bench {
namespace {

void ssd_update(Bench& bench, int64_t rows, int64_t heads) {
  constexpr int64_t dim = 64, states = 128, groups = 1;
  const auto count = static_cast<size_t>(rows);
  std::vector<int32_t> offsets(count + 1), slots(count);
  const int64_t unit = heads * dim * states * 4 / state_granule;
  for (size_t r = 0; r <= count; ++r) offsets[r] = int32_t(r);
  for (size_t r = 0; r < count; ++r) slots[r] = int32_t(int64_t(r) * unit);
  const TensorView state = bench.random(DType::f32, {rows, heads, dim, states});
  const TensorView slot = bench.values(DType::i32, slots, {rows});
  const TensorView small = bench.random(DType::f32, {heads});
  const SsdScanArgs a{
      .x = bench.random(DType::f32, {rows, heads, dim}),
      .dt = bench.random(DType::f32, {rows, heads}),
      .b = bench.random(DType::f32, {rows, groups, states}),
      .c = bench.random(DType::f32, {rows, groups, states}),
      .a = small.as<float>(),
      .d = small.as<float>(),
      .dt_bias = small.as<float>(),
      .dt_min = 0.001f,
      .dt_max = 0.1f,
      .rows = {.row_offsets = bench.values(DType::i32, offsets, {rows + 1}),
               .num_rows = rows,
               .num_tokens = rows,
               .max_new_tokens = 1},
      .state = {.base = static_cast<std::byte*>(state.data), .read = slot.as<int32_t>(), .write = slot.as<int32_t>()},
      .y = bench.alloc(DType::f32, {rows, heads, dim})};
  const SsdScanDesc desc{heads, dim, states, groups};
  const auto kernel = KernelSelector(Device::cuda).resolve(ssd_scan_op(), desc);
  bench.report(
      fmt::format("{} {} x {} heads of 64 x 128", kernel.name, rows, heads), [&] { kernel(a, bench.context); },
      2.0 * double(state.bytes()) + 2.0 * double(a.x.bytes()), 0, {}, fmt::format("ssd_update {} {}", rows, heads));
  bench.buffers.clear();
}

void ssd_prefill(Bench& bench, int64_t rows, int64_t fresh, int64_t heads, int64_t groups) {
  constexpr int64_t dim = 64, states = 128;
  const auto count = static_cast<size_t>(rows);
  std::vector<int32_t> offsets(count + 1), slots(count);
  const int64_t unit = heads * dim * states * 4 / state_granule, tokens = rows * fresh;
  for (size_t r = 0; r <= count; ++r) offsets[r] = int32_t(int64_t(r) * fresh);
  for (size_t r = 0; r < count; ++r) slots[r] = int32_t(int64_t(r) * unit);
  const TensorView state = bench.random(DType::f32, {rows, heads, dim, states}, 0.1f);
  const TensorView slot = bench.values(DType::i32, slots, {rows});
  // Decays of 0.99 and of 0.3 a token, and between.
  std::vector<float> rates(static_cast<size_t>(heads));
  for (size_t h = 0; h < rates.size(); ++h) rates[h] = -0.1f - 16.0f * float(h) / float(heads);
  SsdScanArgs a{
      .x = bench.random(DType::f32, {tokens, heads, dim}),
      .dt = bench.random(DType::f32, {tokens, heads}),
      .b = bench.random(DType::f32, {tokens, groups, states}),
      .c = bench.random(DType::f32, {tokens, groups, states}),
      .a = bench.values(DType::f32, rates, {heads}).as<float>(),
      .d = bench.random(DType::f32, {heads}).as<float>(),
      .dt_bias = bench.values(DType::f32, std::vector<float>(size_t(heads), -3.0f), {heads}).as<float>(),
      .dt_min = 0.001f,
      .dt_max = 0.1f,
      .rows = {.row_offsets = bench.values(DType::i32, offsets, {rows + 1}),
               .num_rows = rows,
               .num_tokens = tokens,
               .max_new_tokens = fresh},
      .state = {.base = static_cast<std::byte*>(state.data), .read = slot.as<int32_t>(), .write = slot.as<int32_t>()},
      .y = bench.alloc(DType::f32, {tokens, heads, dim})};
  const SsdScanDesc desc{heads, dim, states, groups};
  const auto kernel = KernelSelector(Device::cuda).resolve(ssd_scan_op(), desc);
  SsdScanArgs in_order = a;
  in_order.reproducible = true;
  in_order.y = bench.alloc(DType::f32, {tokens, heads, dim});
  const TensorView before = bench.alloc(DType::f32, {state.elements()});
  copy_bytes(before.data, state.data, state.bytes());
  kernel(in_order, bench.context);
  copy_bytes(state.data, before.data, state.bytes());
  kernel(a, bench.context);
  const double error = relative_error(a.y, in_order.y);
  const double bytes = 2.0 * double(state.bytes() + a.x.bytes()) + double(a.dt.bytes() + a.b.bytes() + a.c.bytes());
  for (const bool reproducible : {true, false}) {
    a.reproducible = reproducible;
    bench.report(
        fmt::format("{} {} x {} tokens, {} heads of 64 x 128{}", kernel.name, rows, fresh, heads,
                    reproducible ? ", in token order" : ""),
        [&] { kernel(a, bench.context); }, bytes, 0, reproducible ? std::optional<double>() : std::optional(error));
  }
  bench.buffers.clear();
}

void delta(Bench& bench, int64_t rows, int64_t fresh, int64_t key_heads, int64_t heads, bool per_channel) {
  constexpr int64_t dim = 128;
  const auto count = static_cast<size_t>(rows);
  const int64_t unit = heads * dim * dim * 4 / state_granule, tokens = rows * fresh, decays = per_channel ? dim : 1;
  std::vector<int32_t> offsets(count + 1), slots(count), computed(count, 1000);
  for (size_t r = 0; r <= count; ++r) offsets[r] = int32_t(int64_t(r) * fresh);
  for (size_t r = 0; r < count; ++r) slots[r] = int32_t(int64_t(r) * unit);
  const TensorView state = bench.random(DType::f32, {rows, heads, dim, dim}, 0.1f);
  const TensorView slot = bench.values(DType::i32, slots, {rows});
  const TensorView rate = bench.values(DType::f32, std::vector<float>(size_t(heads), -0.5f), {heads});
  const GatedDeltaArgs a{
      .q = bench.random(DType::f32, {tokens, key_heads, dim}),
      .k = bench.random(DType::f32, {tokens, key_heads, dim}),
      .v = bench.random(DType::f32, {tokens, heads, dim}),
      .dt = bench.random(DType::f32, {tokens, heads, decays}),
      .beta = bench.random(DType::f32, {tokens, heads}),
      .a = rate.as<float>(),
      .dt_bias = bench.random(DType::f32, {heads, decays}).as<float>(),
      .scale = 0.0884f,
      .rows = {.row_offsets = bench.values(DType::i32, offsets, {rows + 1}),
               .computed = bench.values(DType::i32, computed, {rows}),
               .num_rows = rows,
               .num_tokens = tokens,
               .max_new_tokens = fresh,
               .max_context = 1000 + fresh},
      .state = {.base = static_cast<std::byte*>(state.data), .read = slot.as<int32_t>(), .write = slot.as<int32_t>()},
      .y = bench.alloc(DType::f32, {tokens, heads, dim})};
  const GatedDeltaDesc desc{heads, key_heads, dim, dim, per_channel};
  const auto plain = KernelSelector(Device::cuda, Level::cuda).resolve(gated_delta_op(), desc);
  const auto fast = KernelSelector(Device::cuda).resolve(gated_delta_op(), desc);
  GatedDeltaArgs reference = a;
  reference.y = bench.alloc(DType::f32, {tokens, heads, dim});
  const TensorView before = bench.alloc(DType::f32, {state.elements()});
  copy_bytes(before.data, state.data, state.bytes());
  plain(reference, bench.context);
  copy_bytes(state.data, before.data, state.bytes());
  fast(a, bench.context);
  std::optional<double> error;  // of a faster kernel than the portable one
  if (fast.name != plain.name) error = relative_error(a.y, reference.y);
  bench.report(
      fmt::format("{} {} x {} tokens, {}/{} heads{}", fast.name, rows, fresh, key_heads, heads,
                  per_channel ? ", KDA" : ""),
      [&] { fast(a, bench.context); },
      2.0 * double(state.bytes()) + double(a.q.bytes() * 2 + a.v.bytes() * 2 + a.dt.bytes()), 0, error,
      fmt::format("{} {} {} {} {}", per_channel ? "kda" : "delta", rows, fresh, key_heads, heads));
  bench.buffers.clear();
}

}  // namespace

void states(Bench& bench) {
  for (int64_t rows : {102, 410, 2450}) ssd_update(bench, rows, 80);
  ssd_prefill(bench, 1, 8192, 80, 1);
  delta(bench, 128, 1, 16, 32, false);
  delta(bench, 128, 1, 32, 32, true);
  delta(bench, 1, 8192, 16, 32, false);
  delta(bench, 1, 8192, 32, 32, true);
}

}  // namespace medley::bench
