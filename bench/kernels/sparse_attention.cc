#include "kernels/sparse_attention.h"

#include "bench.h"

namespace medley::bench {
namespace {

// One request of DeepSeek-V3.2 that decodes: `keys` of its context's cache rows, or the indexer over all of them.
struct Context {
  Buffer offsets{8}, computed{4}, table{4}, cache;
  PagedCache view;
  RaggedRows rows;

  Context(int64_t context, int64_t elements, DType dtype) : cache(random_buffer(dtype, context * elements, 0.1f)) {
    reinterpret_cast<int32_t*>(offsets.data())[0] = 0;
    reinterpret_cast<int32_t*>(offsets.data())[1] = 1;
    reinterpret_cast<int32_t*>(computed.data())[0] = int32_t(context - 1);
    reinterpret_cast<int32_t*>(table.data())[0] = 0;
    view = {.base = cache.data(),
            .dtype = dtype,
            .row_bytes = elements * int64_t(size_of(dtype)),
            .tokens_per_block = int32_t(context),
            .block_table = table.view(DType::i32, {1, 1})};
    rows = {offsets.view(DType::i32, {2}), computed.view(DType::i32, {1}), 1, 1, 1, context};
  }
};

void one_select(Bench& bench, int64_t context) {
  const std::string name = fmt::format("index_select 64x128, best 2048 of {} bf16", context);
  if (!bench.wanted(name)) return;
  constexpr int64_t heads = 64, dim = 128, top_k = 2048;
  const auto kernel = bench.selector.resolve(index_select_op(), IndexSelectDesc{heads, dim, DType::bf16});
  const Context all(context, dim, DType::bf16);
  const Buffer q = random_buffer(DType::f32, heads * dim), weights = random_buffer(DType::f32, heads),
               selected(top_k * 4);
  const IndexSelectArgs args{
      q.view(DType::f32, {1, heads, dim}),  weights.view(DType::f32, {1, heads}), all.view, all.rows, top_k,
      selected.view(DType::i32, {1, top_k})};
  bench.report(name, kernel.name, double(context) * heads * dim * 2, bench.ceilings.f32_flops, "GFLOP/s",
               [&] { kernel(args, bench.context); });
}

void one_sparse(Bench& bench, int64_t keys) {
  const std::string name = fmt::format("sparse_attention 128x576/512 over {} keys bf16", keys);
  if (!bench.wanted(name)) return;
  constexpr int64_t heads = 128, k_dim = 576, v_dim = 512;
  const auto kernel = bench.selector.resolve(
      sparse_attention_op(),
      SparseAttentionDesc{.heads = heads, .kv_heads = 1, .k_dim = k_dim, .v_dim = v_dim, .cache = DType::bf16});
  const Context all(4 * keys, k_dim, DType::bf16);
  const Buffer q = random_buffer(DType::f32, heads * k_dim), y(heads * v_dim * 4);
  Buffer selected(size_t(keys) * 4);
  for (int64_t i = 0; i < keys; ++i) reinterpret_cast<int32_t*>(selected.data())[i] = int32_t(4 * i + 3);
  SparseAttentionArgs args;
  args.q = q.view(DType::f32, {1, heads, k_dim});
  args.cache = all.view;
  args.rows = all.rows;
  args.selected = selected.view(DType::i32, {1, keys});
  args.kv_heads = 1;
  args.v_dim = v_dim;
  args.scale = 0.1f;
  args.y = y.view(DType::f32, {1, heads, v_dim});
  bench.report(name, kernel.name, double(keys) * heads * 2 * (k_dim + v_dim), bench.ceilings.f32_flops, "GFLOP/s",
               [&] { kernel(args, bench.context); });
}

}  // namespace

void bench_sparse_attention(Bench& bench) {
  one_select(bench, 8192);
  one_select(bench, 65536);
  one_sparse(bench, 2048);
}

}  // namespace medley::bench
