#include "kernels/attention.h"

#include <numeric>

#include "bench.h"

namespace medley::bench {
namespace {

struct Heads {
  const char* name;
  int64_t heads, kv_heads, k_dim, v_dim, v_offset, elements;
};

// `rows` requests with `context` tokens each, of which the last `fresh` are new.
void one_paged(Bench& bench, const Heads& h, DType cache_type, int64_t rows, int64_t context, int64_t fresh) {
  const std::string name =
      fmt::format("{} {} rows of {}+{} {}", h.name, rows, context - fresh, fresh, name_of(cache_type));
  if (!bench.wanted(name)) return;
  PagedAttentionDesc desc;
  desc.heads = h.heads;
  desc.kv_heads = h.kv_heads;
  desc.k_dim = h.k_dim;
  desc.v_dim = h.v_dim;
  desc.v_offset = h.v_offset;
  desc.cache = cache_type;
  const auto kernel = bench.selector.resolve(paged_attention_op(), desc);
  constexpr int32_t tokens_per_block = 16;
  const int64_t blocks = (context + tokens_per_block - 1) / tokens_per_block;
  const Buffer cache = random_buffer(cache_type, rows * blocks * tokens_per_block * h.elements);
  const Buffer q = random_buffer(DType::f32, rows * fresh * h.heads * h.k_dim);
  const Buffer y(size_t(rows * fresh * h.heads * h.v_dim) * 4), table(size_t(rows * blocks) * 4),
      offsets(size_t(rows + 1) * 4), computed(size_t(rows) * 4);
  for (int64_t i = 0; i < rows * blocks; ++i)
    reinterpret_cast<int32_t*>(table.data())[i] = int32_t((i * 7919) % (rows * blocks)) * tokens_per_block;
  for (int64_t r = 0; r <= rows; ++r) reinterpret_cast<int32_t*>(offsets.data())[r] = int32_t(r * fresh);
  for (int64_t r = 0; r < rows; ++r) reinterpret_cast<int32_t*>(computed.data())[r] = int32_t(context - fresh);
  PagedAttentionArgs args;
  args.q = q.view(DType::f32, {rows * fresh, h.heads, h.k_dim});
  args.cache.base = cache.data();
  args.cache.dtype = cache_type;
  args.cache.row_bytes = h.elements * int64_t(size_of(cache_type));
  args.cache.tokens_per_block = tokens_per_block;
  args.cache.block_table = table.view(DType::i32, {rows, blocks});
  args.rows = {
      offsets.view(DType::i32, {rows + 1}), computed.view(DType::i32, {rows}), rows, rows * fresh, fresh, context};
  args.kv_heads = h.kv_heads;
  args.v_dim = h.v_dim;
  args.v_offset = h.v_offset;
  args.scale = 0.1f;
  args.y = y.view(DType::f32, {rows * fresh, h.heads, h.v_dim});
  const double pairs = double(rows * fresh) * (double(context - fresh) + double(fresh + 1) / 2);
  const double flops = 2 * pairs * double(h.heads) * double(h.k_dim + h.v_dim);
  const double bytes = double(rows * context * args.cache.row_bytes);
  const auto run = [&] { kernel(args, bench.context); };
  // The bound that binds: what the kernel has to read, or what it has to multiply.
  if (flops / bench.ceilings.f32_flops > bytes / bench.ceilings.read_bytes) {
    bench.report(name, kernel.name, flops, bench.ceilings.f32_flops, "GFLOP/s", run);
  } else {
    bench.report(name, kernel.name, bytes, bench.ceilings.read_bytes, "GB/s", run);
  }
}

void one_piece(Bench& bench, int64_t heads, int64_t queries, int64_t keys, DType kv) {
  const std::string name = fmt::format("MLA prefill {} heads {} of {} {}", heads, queries, keys, name_of(kv));
  if (!bench.wanted(name)) return;
  constexpr int64_t nope = 128, rope = 64, v_dim = 128;
  const auto kernel = bench.selector.resolve(piece_attention_op(), PieceAttentionDesc{heads, nope, rope, v_dim, kv});
  const Buffer q = random_buffer(DType::f32, queries * heads * (nope + rope)), k_rope = random_buffer(kv, keys * rope),
               both = random_buffer(kv, keys * heads * (nope + v_dim)), y(size_t(queries * heads * v_dim) * 4),
               lse(size_t(queries * heads) * 4);
  const TensorView kv_view = both.view(kv, {keys, heads, nope + v_dim});
  PieceAttentionArgs args;
  args.q = q.view(DType::f32, {queries, heads, nope + rope});
  args.k_nope = kv_view.slice(2, 0, nope);
  args.k_rope = k_rope.view(kv, {keys, rope});
  args.v = kv_view.slice(2, nope, v_dim);
  args.q_position = keys - queries;
  args.scale = 0.1f;
  args.y = y.view(DType::f32, {queries, heads, v_dim});
  args.lse = lse.view(DType::f32, {queries, heads});
  const double pairs = double(queries) * (double(keys - queries) + double(queries + 1) / 2);
  bench.report(name, kernel.name, 2 * pairs * double(heads) * (nope + rope + v_dim), bench.ceilings.f32_flops,
               "GFLOP/s", [&] { kernel(args, bench.context); });
}

}  // namespace

void bench_attention(Bench& bench) {
  const Heads gqa{"GQA 32/8x128", 32, 8, 128, 128, 8 * 128, 2 * 8 * 128};
  const Heads mha{"MHA 16/16x128", 16, 16, 128, 128, 16 * 128, 2 * 16 * 128};
  const Heads mla{"MLA 16x576/512", 16, 1, 576, 512, 0, 576};
  const Heads big{"MLA 128x576/512", 128, 1, 576, 512, 0, 576};
  for (DType cache : {DType::bf16, DType::f32}) {
    one_paged(bench, gqa, cache, 1, 128, 1);
    one_paged(bench, gqa, cache, 1, 512, 1);
    one_paged(bench, mla, cache, 1, 512, 1);
    one_paged(bench, gqa, cache, 16, 4096, 1);
    one_paged(bench, mha, cache, 8, 4096, 1);
    one_paged(bench, gqa, cache, 1, 512, 512);
    one_paged(bench, mla, cache, 16, 8192, 1);
    one_paged(bench, big, cache, 4, 4096, 1);
    one_piece(bench, 16, 512, 512, cache);
  }
}

}  // namespace medley::bench
