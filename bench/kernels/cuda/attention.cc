// Paged attention: MLA and grouped queries, decode and prefill.
#include "kernels/attention.h"

#include "cuda_bench.h"

namespace medley::bench {
namespace {

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
  bench.report(
      fmt::format("{} h{} b{} s{} page {}", fast.name, heads, batch, context, page), [&] { fast(a, bench.context); },
      double(batch * context) * 1152 + double(batch * heads) * (576 + 512) * 4,
      2.0 * double(batch * heads * context) * (576 + 512), error, fmt::format("mla {} {} {}", heads, batch, context));
  bench.buffers.clear();
}

// Rows of `context` tokens each, the last `fresh` of them new.
void grouped_queries(Bench& bench, int64_t heads, int64_t kv_heads, int64_t batch, int64_t context, int64_t fresh) {
  constexpr int64_t dim = 128, page = 64;
  const int64_t blocks = (context + page - 1) / page, tokens = batch * fresh;
  const auto rows = static_cast<size_t>(batch);
  std::vector<int32_t> table(rows * size_t(blocks)), offsets(rows + 1), computed(rows, int32_t(context - fresh));
  for (size_t i = 0; i < table.size(); ++i) table[i] = int32_t(i * page);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  for (size_t r = 0; r <= rows; ++r) offsets[r] = int32_t(int64_t(r) * fresh);
  const int64_t row_elements = 2 * kv_heads * dim;
  const TensorView cache = bench.random(DType::bf16, {batch * blocks * page, row_elements});
  PagedAttentionArgs a{.q = bench.random(DType::f32, {tokens, heads, dim}),
                       .cache = {.base = static_cast<std::byte*>(cache.data),
                                 .row_bytes = row_elements * 2,
                                 .tokens_per_block = page,
                                 .block_table = bench.values(DType::i32, table, {batch, blocks})},
                       .rows = {.row_offsets = bench.values(DType::i32, offsets, {batch + 1}),
                                .computed = bench.values(DType::i32, computed, {batch}),
                                .num_rows = batch,
                                .num_tokens = tokens,
                                .max_new_tokens = fresh,
                                .max_context = context},
                       .kv_heads = kv_heads,
                       .v_dim = dim,
                       .v_offset = kv_heads * dim,
                       .scale = 0.0884f,
                       .y = bench.alloc(DType::bf16, {tokens, heads, dim})};
  PagedAttentionArgs reference = a;
  reference.y = bench.alloc(DType::bf16, {tokens, heads, dim});
  const PagedAttentionDesc desc{
      .heads = heads, .kv_heads = kv_heads, .k_dim = dim, .v_dim = dim, .v_offset = a.v_offset, .y = DType::bf16};
  const auto plain = KernelSelector(Device::cuda, Level::cuda).resolve(paged_attention_op(), desc);
  const auto fast = KernelSelector(Device::cuda).resolve(paged_attention_op(), desc);
  fast(a, bench.context);
  plain(reference, bench.context);
  const double error = relative_error(a.y, reference.y);
  const double pairs = double(batch) * (double(fresh) * double(context - fresh) + double(fresh) * double(fresh) / 2);
  bench.report(
      fmt::format("{} GQA {}/{} b{} s{} new {}", fast.name, heads, kv_heads, batch, context, fresh),
      [&] { fast(a, bench.context); }, double(batch * context * row_elements * 2) + double(tokens * heads * dim * 6),
      4.0 * double(heads * dim) * pairs, error,
      fmt::format("gqa {} {} {} {} {}", heads, kv_heads, batch, context, fresh));
  bench.buffers.clear();
}

// A prompt of `tokens` in pieces of 2,048 keys, already projected: MLA's prefill without its products.
void pieces(Bench& bench, int64_t heads, int64_t tokens) {
  constexpr int64_t nope = 128, rope_dim = 64, v_dim = 128, piece = 2048;
  const TensorView kv = bench.random(DType::bf16, {tokens, heads, nope + v_dim}),
                   rope = bench.random(DType::bf16, {tokens, rope_dim});
  const PieceAttentionDesc desc{heads, nope, rope_dim, v_dim, DType::bf16};
  PieceAttentionArgs a{.q = bench.random(DType::f32, {tokens, heads, nope + rope_dim}),
                       .scale = 0.0722f,
                       .y = bench.alloc(DType::f32, {tokens, heads, v_dim}),
                       .lse = bench.alloc(DType::f32, {tokens, heads})};
  const auto run = [&](const Kernel<PieceAttentionArgs>& kernel) {
    for (int64_t first = 0; first < tokens; first += piece) {
      const int64_t count = std::min(piece, tokens - first);
      a.first = first == 0, a.k_position = first;
      a.k_nope = kv.slice(0, first, count), a.v = a.k_nope, a.k_rope = rope.slice(0, first, count);
      a.k_nope.shape[2] = nope, a.v.shape[2] = v_dim;
      a.v.data = static_cast<std::byte*>(a.v.data) + nope * 2;
      kernel(a, bench.context);
    }
  };
  const auto fast = KernelSelector(Device::cuda).resolve(piece_attention_op(), desc);
  const TensorView y = a.y;
  run(fast);
  a.y = bench.alloc(DType::f32, {tokens, heads, v_dim});
  run(KernelSelector(Device::cuda, Level::cuda).resolve(piece_attention_op(), desc));
  const double error = relative_error(y, a.y);
  bench.report(
      fmt::format("{} h{} {} tokens", fast.name, heads, tokens), [&] { run(fast); },
      double(kv.bytes() + a.q.bytes() + a.y.bytes()), double(heads * tokens * tokens) * (nope + rope_dim + v_dim),
      error, fmt::format("mla_prefill {} {}", heads, tokens), 7);
  bench.buffers.clear();
}

}  // namespace

void attention(Bench& bench) {
  for (int page : {64, 16}) mla(bench, 16, 128, 4096, page);
  for (int batch : {1, 8}) mla(bench, 16, batch, 4096, 64);
  mla(bench, 16, 1, 32768, 64);
  mla(bench, 128, 128, 4096, 64);
  mla(bench, 128, 1, 4096, 64);
  pieces(bench, 16, 4096);
  pieces(bench, 128, 4096);
  grouped_queries(bench, 32, 8, 64, 4096, 1);
  grouped_queries(bench, 32, 8, 1, 4096, 1);
  grouped_queries(bench, 32, 8, 1, 32768, 1);
  grouped_queries(bench, 32, 8, 1, 8192, 8192);
  grouped_queries(bench, 32, 8, 8, 4096, 512);
}

}  // namespace medley::bench
