#include "kernels/linear.h"

#include "bench.h"
#include "kernels/moe.h"

namespace medley::bench {
namespace {

// Of a block type: bytes that make small codes and scales in any of the places where scales lie.
Buffer random_weight(DType dtype, int64_t bytes) {
  if (!is_block(dtype)) return random_buffer(dtype, bytes / int64_t(size_of(dtype)), 0.02f);
  Buffer buffer{size_t(bytes)};
  std::mt19937 rng(1);
  for (int64_t i = 0; i < bytes; ++i) buffer.data()[i] = std::byte(rng() % 0x30);
  return buffer;
}

// `copies` matrices used in turn, so that none is found in a cache.
void one_linear(Bench& bench, int64_t m, int64_t n, int64_t k, DType x_type, DType weight_type, int64_t copies,
                bool int8 = false) {
  const std::string name =
      fmt::format("linear {}x{}x{} x {}{} w {}", m, n, k, name_of(x_type), int8 ? " int8" : "", name_of(weight_type));
  if (!bench.wanted(name)) return;
  const auto kernel = bench.selector.resolve(linear_op(), LinearDesc{k, n, x_type, weight_type, int8});
  const int64_t slot = packed_bytes(kernel.layout, weight_type, n, k);
  const Buffer weight = random_weight(weight_type, slot * copies);
  const Buffer x = random_buffer(x_type, m * k), y(size_t(m * n) * 4);
  const double flops = 2.0 * double(m) * double(n) * double(k);
  int64_t turn = 0;
  const auto run = [&] {
    LinearArgs args;
    args.x = x.view(x_type, {m, k});
    args.weight = {weight.data() + turn++ % copies * slot, weight_type, kernel.layout, n, k, 1, slot};
    args.y = y.view(DType::f32, {m, n});
    kernel(args, bench.context);
  };
  const bool dot = kernel.name.starts_with("avx512");
  if (m <= 4) {
    bench.report(name, kernel.name, double(slot), bench.ceilings.read_bytes, "GB/s", run);
  } else {
    bench.report(name, kernel.name, flops, dot ? bench.ceilings.bf16_flops : bench.ceilings.f32_flops, "GFLOP/s", run);
  }
}

// Decode of a mixture of experts: `tokens` tokens, top_k of `slots` experts each.
void one_grouped(Bench& bench, int64_t tokens, int64_t top_k, int32_t slots, int64_t n, int64_t k, DType x_type) {
  const std::string name =
      fmt::format("grouped_linear {} tokens top {} of {} {}x{} x {}", tokens, top_k, slots, n, k, name_of(x_type));
  if (!bench.wanted(name)) return;
  const auto kernel =
      bench.selector.resolve(grouped_linear_op(), GroupedLinearDesc{LinearDesc{k, n, x_type, DType::bf16}, slots});
  const int64_t slot = packed_bytes(kernel.layout, DType::bf16, n, k), pairs = tokens * top_k, block_m = 16;
  const Buffer weight = random_buffer(DType::bf16, slot * slots / 2, 0.02f);
  const Buffer x = random_buffer(x_type, tokens * k), y(size_t(pairs * n) * 4);
  const int64_t capacity = align_capacity(pairs, slots, block_m);
  const Buffer ids(size_t(pairs) * 4), sorted(size_t(capacity) * 4), blocks(size_t(capacity) * 4), padded(4);
  std::mt19937 rng(2);
  std::vector<bool> used(static_cast<size_t>(slots));
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t id = int32_t(rng() % uint32_t(slots));
    reinterpret_cast<int32_t*>(ids.data())[i] = id;
    used[size_t(id)] = true;
  }
  const AlignArgs align{ids.view(DType::i32, {tokens, top_k}),
                        nullptr,
                        slots,
                        slots,
                        block_m,
                        sorted.view(DType::i32, {capacity}),
                        blocks.view(DType::i32, {capacity / block_m}),
                        padded.view(DType::i32, {1})};
  bench.selector.resolve(align_op(), AlignDesc{slots, slots})(align, bench.context);
  GroupedLinearArgs args;
  args.x = x.view(x_type, {tokens, k});
  args.x_divisor = top_k;
  args.weight = {weight.data(), DType::bf16, kernel.layout, n, k, slots, slot};
  args.y = y.view(DType::f32, {pairs, n});
  args.sorted_token_ids = align.sorted_token_ids.as<int32_t>();
  args.expert_ids = align.expert_ids.as<int32_t>();
  args.num_tokens_post_padded = align.num_tokens_post_padded.as<int32_t>();
  args.num_pairs = pairs;
  args.block_m = block_m;
  const int64_t experts = std::count(used.begin(), used.end(), true);
  bench.report(name, kernel.name, double(slot * experts), bench.ceilings.read_bytes, "GB/s",
               [&] { kernel(args, bench.context); });
}

}  // namespace

void bench_linear(Bench& bench) {
  for (auto [x, w] : {std::pair{DType::bf16, DType::bf16},
                      {DType::f32, DType::bf16},
                      {DType::f32, DType::f16},
                      {DType::f32, DType::f32}}) {
    one_linear(bench, 512, 4096, 4096, x, w, 1);
    for (int64_t m : {1, 2, 4, 16}) one_linear(bench, m, 4096, 4096, x, w, w == DType::f32 ? 6 : 12);
  }
  for (DType w :
       {DType::q4_k, DType::q6_k, DType::q8_0, DType::q4_0, DType::q5_k, DType::q3_k, DType::q2_k, DType::mxfp4})
    for (DType x : {DType::bf16, DType::f32}) {
      for (bool int8 : {false, true})
        if (w != DType::mxfp4) one_linear(bench, 512, 4096, 4096, x, w, 1, int8);
      for (int64_t m : {1, 4, 16})
        for (bool int8 : {false, true}) one_linear(bench, m, 4096, 4096, x, w, 24, int8);
    }
  for (DType x : {DType::bf16, DType::f32}) {
    one_grouped(bench, 1, 8, 64, 2048, 2048, x);
    one_grouped(bench, 16, 8, 64, 2048, 2048, x);
  }
}

}  // namespace medley::bench
