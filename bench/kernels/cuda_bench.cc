// Times CUDA kernels on the device it finds: cold L2, random data, medians, each case checked against the portable
// kernel before it is timed. Prints the bytes and operations that the case cannot avoid, over the rates that the same
// run measured. bench/kernels/cuda_peers.py times PyTorch on the same shapes.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "core/kv_cache_spec.h"
#include "kernels/attention.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/pointwise.h"
#include "kernels/state_space.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

void must(cudaError_t status) {
  if (status != cudaSuccess) fail("CUDA: {}", cudaGetErrorString(status));
}

struct Bench {
  ThreadPool pool{1};
  Workspace workspace{Device::cuda};
  ExecContext context{pool, workspace};
  std::vector<Buffer> buffers;
  Buffer flush{size_t(256) << 20, Device::cuda};  // several times the L2
  Buffer flush_x{size_t(64) << 10, Device::cuda}, flush_y{size_t(64) << 10, Device::cuda};
  double bytes_per_us = 0;
  size_t tensors = 0;

  TensorView alloc(DType dtype, std::initializer_list<int64_t> shape) {
    buffers.emplace_back(TensorView(nullptr, dtype, shape).bytes(), Device::cuda);
    return buffers.back().view(dtype, shape);
  }
  // Normal values; a block of a million of them, repeated at odd offsets, is random enough for a memory system.
  TensorView random(DType dtype, std::initializer_list<int64_t> shape, float scale = 1) {
    const TensorView view = alloc(dtype, shape);
    static std::vector<float> noise = [] {
      std::mt19937 engine(7);
      std::normal_distribution<float> normal;
      std::vector<float> values(1000003);
      for (float& value : values) value = normal(engine);
      return values;
    }();
    std::vector<bf16> narrow;
    std::vector<float> scaled;
    for (float value : noise) {
      if (dtype == DType::bf16) narrow.emplace_back(value * scale);
      if (dtype == DType::f32) scaled.push_back(value * scale);
    }
    const void* from = dtype == DType::bf16 ? static_cast<const void*>(narrow.data()) : scaled.data();
    const size_t chunk = noise.size() * size_of(dtype);
    const size_t skip = 7919 * ++tensors % 100000 * size_of(dtype);  // no two tensors start alike
    for (size_t at = 0; at < view.bytes(); at += chunk - skip)
      copy_bytes(static_cast<std::byte*>(view.data) + at, static_cast<const std::byte*>(from) + skip,
                 std::min(chunk - skip, view.bytes() - at));
    return view;
  }
  template <class T>
  TensorView values(DType dtype, const std::vector<T>& host, std::initializer_list<int64_t> shape) {
    const TensorView view = alloc(dtype, shape);
    copy_bytes(view.data, host.data(), host.size() * sizeof(T));
    return view;
  }

  // Reads more than the L2 holds: a cache full of written lines would make the timed kernel pay for their way out.
  void clear_cache() {
    static const auto kernel =
        KernelSelector(Device::cuda).resolve(linear_op(), {4096, 32768, DType::bf16, DType::bf16});
    kernel({.x = flush_x.view(DType::bf16, {1, 4096}),
            .weight = {.data = flush.data(), .n = 32768, .k = 4096},
            .y = flush_y.view(DType::bf16, {1, 32768})},
           context);
  }

  double median_us(const std::function<void()>& run, int repeats = 15) {
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin));
    must(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = -2; i < repeats; ++i) {
      clear_cache();
      must(cudaEventRecord(begin));
      run();
      must(cudaEventRecord(end));
      must(cudaEventSynchronize(end));
      float ms = 0;
      must(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 0) times.push_back(ms * 1000);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  void report(const std::string& name, double us, double bytes, double operations, double error) {
    constexpr double operations_per_us = 784e6;  // bf16 products of 8192^3 on this chip
    const double limit = std::max(bytes / bytes_per_us, operations / operations_per_us);
    fmt::print("{:44} {:9.1f} us  limit {:8.1f}  {:5.1f} %  {:6.0f} GB/s  {:5.0f} TFLOP/s  error {:.1e}\n", name, us,
               limit, 100 * limit / us, bytes / us / 1e3, operations / us / 1e6, error);
  }
};

double relative_error(const TensorView& got, const TensorView& want) {
  std::vector<float> g(size_t(got.elements())), w(g.size());
  copy_bytes(g.data(), got.data, got.bytes());
  copy_bytes(w.data(), want.data, want.bytes());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    difference += (double(g[i]) - w[i]) * (double(g[i]) - w[i]);
    norm += double(w[i]) * w[i];
  }
  return std::sqrt(difference / norm);
}

void mla(Bench& bench, int64_t heads, int64_t batch, int64_t context, int page) {
  const int64_t blocks = (context + page - 1) / page;
  const auto rows = static_cast<size_t>(batch);
  std::vector<int32_t> table(rows * size_t(blocks)), offsets(rows + 1), computed(rows, int32_t(context - 1));
  for (size_t i = 0; i < table.size(); ++i) table[i] = int32_t(i) * page;
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  for (size_t r = 0; r <= rows; ++r) offsets[r] = int32_t(r);
  const TensorView cache = bench.random(DType::bf16, {batch * blocks * page, 576});
  PagedAttentionArgs a{.q = bench.random(DType::f32, {batch, heads, 576}),
                       .cache = {.base = static_cast<std::byte*>(cache.data),
                                 .row_bytes = 1152,
                                 .tokens_per_block = page,
                                 .block_table = bench.values(DType::i32, table, {batch, blocks})},
                       .rows = {.row_offsets = bench.values(DType::i32, offsets, {batch + 1}),
                                .computed = bench.values(DType::i32, computed, {batch}),
                                .num_rows = batch,
                                .num_tokens = batch,
                                .max_new_tokens = 1,
                                .max_context = context},
                       .kv_heads = 1,
                       .v_dim = 512,
                       .scale = 0.0417f,
                       .y = bench.alloc(DType::f32, {batch, heads, 512})};
  PagedAttentionArgs reference = a;
  reference.y = bench.alloc(DType::f32, {batch, heads, 512});
  const PagedAttentionDesc desc{.heads = heads, .kv_heads = 1, .k_dim = 576, .v_dim = 512};
  const auto plain = KernelSelector(Device::cuda, Level::cuda).resolve(paged_attention_op(), desc);
  const auto fast = KernelSelector(Device::cuda).resolve(paged_attention_op(), desc);
  fast(a, bench.context);
  plain(reference, bench.context);
  const double error = relative_error(a.y, reference.y);
  const double us = bench.median_us([&] { fast(a, bench.context); });
  bench.report(fmt::format("{} h{} b{} s{} page {}", fast.name, heads, batch, context, page), us,
               double(batch * context) * 1152 + double(batch * heads) * (576 + 512) * 4,
               2.0 * double(batch * heads * context) * (576 + 512), error);
  bench.buffers.clear();
}

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
  const double us = bench.median_us([&] { kernel(a, bench.context); });
  bench.report(fmt::format("{} {} x {} heads of 64 x 128", kernel.name, rows, heads), us,
               2.0 * double(state.bytes()) + 2.0 * double(a.x.bytes()), 0, 0);
  bench.buffers.clear();
}

void routing(Bench& bench, int64_t tokens) {
  constexpr int32_t experts = 256, top_k = 8;
  constexpr int64_t block_m = 16;
  const RoutingRule rule{.score = RouterScore::sigmoid,
                         .group_score = GroupScore::top2_sum,
                         .experts = experts,
                         .top_k = top_k,
                         .groups = 8,
                         .top_groups = 4,
                         .renormalize = true,
                         .scaling = 2.5f};
  const int64_t capacity = align_capacity(tokens * top_k, experts, block_m);
  const RouteArgs route{.logits = bench.random(DType::f32, {tokens, experts}),
                        .correction_bias = bench.random(DType::f32, {experts}, 0.1f).as<float>(),
                        .rule = rule,
                        .topk_ids = bench.alloc(DType::i32, {tokens, top_k}),
                        .topk_weights = bench.alloc(DType::f32, {tokens, top_k})};
  const AlignArgs align{.topk_ids = route.topk_ids,
                        .experts = experts,
                        .slots = experts,
                        .block_m = block_m,
                        .sorted_token_ids = bench.alloc(DType::i32, {capacity}),
                        .expert_ids = bench.alloc(DType::i32, {capacity / block_m}),
                        .num_tokens_post_padded = bench.alloc(DType::i32, {1})};
  const auto first = KernelSelector(Device::cuda).resolve(route_op(), {rule});
  const auto second = KernelSelector(Device::cuda).resolve(align_op(), {experts, experts});
  const double bytes = double(route.logits.bytes()) + 3.0 * double(tokens * top_k) * 4;
  bench.report(fmt::format("{} E256 top-8 T={}", first.name, tokens),
               bench.median_us([&] { first(route, bench.context); }), bytes, 0, 0);
  bench.report(fmt::format("{} E256 top-8 T={}", second.name, tokens),
               bench.median_us([&] { second(align, bench.context); }), bytes, 0, 0);
  bench.report(fmt::format("route + align E256 top-8 T={}", tokens), bench.median_us([&] {
    first(route, bench.context);
    second(align, bench.context);
  }),
               bytes, 0, 0);
  bench.buffers.clear();
}

void linear(Bench& bench, int64_t tokens, int64_t n, int64_t k) {
  const TensorView w = bench.random(DType::bf16, {n, k});
  const LinearArgs a{.x = bench.random(DType::bf16, {tokens, k}),
                     .weight = {.data = static_cast<std::byte*>(w.data), .n = n, .k = k},
                     .y = bench.alloc(DType::f32, {tokens, n})};
  const auto kernel = KernelSelector(Device::cuda).resolve(linear_op(), {k, n, DType::bf16, DType::bf16});
  const double us = bench.median_us([&] { kernel(a, bench.context); });
  bench.report(fmt::format("{} {} x [{}, {}]", kernel.name, tokens, n, k), us,
               double(w.bytes() + a.x.bytes() + a.y.bytes()), 2.0 * double(tokens * n * k), 0);
  bench.buffers.clear();
}

void run() {
  Bench bench;
  {
    const TensorView from = bench.random(DType::f32, {int64_t(1) << 28}),
                     to = bench.alloc(DType::f32, {int64_t(1) << 28});
    const double us =
        bench.median_us([&] { must(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice)); });
    bench.bytes_per_us = 2.0 * double(from.bytes()) / us;
    fmt::print("copy of 1 GiB: {:.0f} GB/s read and written\n", bench.bytes_per_us / 1e3);
    bench.buffers.clear();
  }
  {
    const TensorView one = bench.random(DType::f32, {1, 1});
    const auto kernel = KernelSelector(Device::cuda).resolve(add_op(), {});
    fmt::print("one launch of next to nothing: {:.1f} us\n",
               bench.median_us([&] { kernel({.x = one, .y = one}, bench.context); }));
    bench.buffers.clear();
  }
  for (int page : {64, 16}) mla(bench, 16, 128, 4096, page);
  mla(bench, 16, 1, 32768, 64);
  mla(bench, 128, 128, 4096, 64);
  mla(bench, 128, 1, 4096, 64);
  for (int64_t rows : {102, 410, 2450}) ssd_update(bench, rows, 80);
  for (int64_t tokens : {128, 4096}) routing(bench, tokens);
  for (int64_t tokens : {1, 16, 128, 2048}) linear(bench, tokens, 4096, 4096);
  linear(bench, 1, 102400, 2048);
}

}  // namespace
}  // namespace medley

int main() {
  try {
    medley::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
