// Attention at every level against softmax in double over a cache of shuffled blocks; bits that do not depend on the
// chunking, the company or the threads; pieces merged against the whole.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/test_cache.h"

namespace medley {
namespace {

using namespace test;

struct Heads {
  int64_t heads, kv_heads, k_dim, v_dim, k_offset, v_offset, elements;
};
Heads gqa(int64_t heads, int64_t kv_heads, int64_t dim) {
  return {heads, kv_heads, dim, dim, 0, kv_heads * dim, 2 * kv_heads * dim};
}
Heads mla(int64_t heads, int64_t latent, int64_t rope) {
  return {heads, 1, latent + rope, latent, 0, 0, latent + rope};
}

struct Options {
  int32_t window = 0;
  float softcap = 0;
  bool sinks = false;
};

PagedAttentionDesc describe(const Heads& h, const Options& o, DType cache, DType y) {
  return {h.heads, h.kv_heads, h.k_dim,      h.v_dim, h.k_offset,   h.v_offset,
          cache,   y,          o.window > 0, o.sinks, o.softcap > 0};
}

PagedAttentionArgs arguments(const Heads& h, const Options& o, const TensorView& q, const PagedCache& cache,
                             const RaggedRows& rows, const float* sinks, const TensorView& y) {
  PagedAttentionArgs a;
  a.q = q;
  a.cache = cache;
  a.rows = rows;
  a.kv_heads = h.kv_heads;
  a.v_dim = h.v_dim;
  a.k_offset = h.k_offset;
  a.v_offset = h.v_offset;
  a.scale = 1 / std::sqrt(float(h.k_dim));
  a.window = o.window;
  a.softcap = o.softcap;
  a.sinks = o.sinks ? sinks : nullptr;
  a.y = y;
  return a;
}

// Every element of y in order.
std::vector<Expected> expected_attention(const PagedAttentionArgs& a, const Heads& h, const Rows& rows,
                                         const Cache& cache) {
  std::vector<Expected> expected;
  const std::vector<double> q = doubles(a.q);
  for (int64_t r = 0; r < rows.view.num_rows; ++r)
    for (int64_t i = 0; i < rows.specs[size_t(r)].fresh; ++i)
      for (int64_t head = 0; head < h.heads; ++head) {
        const int64_t token = rows.first(r) + i, position = rows.specs[size_t(r)].computed + i;
        const int64_t begin = a.window > 0 ? std::max<int64_t>(0, position - a.window + 1) : 0;
        const int64_t kv = head / (h.heads / h.kv_heads);
        std::vector<double> scores;
        double worst = 0;  // of one score: the sum of the absolute products, scaled
        for (int64_t p = begin; p <= position; ++p) {
          double score = 0, absolute = 0;
          for (int64_t d = 0; d < h.k_dim; ++d) {
            const double product =
                q[size_t((token * h.heads + head) * h.k_dim + d)] * cache.at(r, p, h.k_offset + kv * h.k_dim + d);
            score += product;
            absolute += std::abs(product);
          }
          score *= double(a.scale);
          worst = std::max(worst, absolute * double(a.scale));
          if (a.softcap > 0) score = double(a.softcap) * std::tanh(score / double(a.softcap));
          scores.push_back(score);
        }
        double top = a.sinks != nullptr ? double(a.sinks[head]) : -1e300;
        for (double score : scores) top = std::max(top, score);
        double total = a.sinks != nullptr ? std::exp(double(a.sinks[head]) - top) : 0;
        for (double score : scores) total += std::exp(score - top);
        // A score is off by at most k_dim + 4 units of `worst`, which moves each weight by that much relatively, and
        // the sums over the context add a unit per key; both numerator and denominator: twice.
        const double keys = double(position - begin + 1);
        const double relative = 2 * (double(h.k_dim + 4) * worst + keys + 12) * f32_unit;
        for (double& score : scores) score = std::exp(score - top) / total;
        for (int64_t d = 0; d < h.v_dim; ++d) {
          double value = 0, absolute = 0;
          for (int64_t p = begin; p <= position; ++p) {
            const double part = scores[size_t(p - begin)] * cache.at(r, p, h.v_offset + kv * h.v_dim + d);
            value += part;
            absolute += std::abs(part);
          }
          const double rounding = a.y.dtype == DType::bf16 ? 1.01 * bf16_unit * std::abs(value) : 0;
          expected.push_back({value, relative * absolute + rounding});
        }
      }
  return expected;
}

const std::vector<Heads>& head_shapes() {
  static const std::vector<Heads> shapes = {gqa(1, 1, 1),    gqa(4, 2, 16),  gqa(6, 2, 33), gqa(8, 8, 64),
                                            gqa(7, 1, 80),   gqa(4, 1, 128), mla(5, 32, 8), mla(17, 64, 16),
                                            mla(7, 512, 64), gqa(12, 4, 100)};
  return shapes;
}

TEST(PagedAttention, EveryLevelIsSoftmaxOverTheRowsOwnContext) {
  Rng rng(1);
  Machine machine(2);
  const std::vector<Options> options = {{}, {5, 0, false}, {0, 3.0f, false}, {0, 0, true}, {37, 2.0f, true}};
  size_t turn = 0;
  for (const Heads& h : head_shapes())
    for (DType dtype : {DType::f32, DType::bf16})
      for (const Options& o : options)
        for (int32_t tokens_per_block : {turn % 4 < 2 ? 4 : 16}) {
          const DType y_type = ++turn % 3 == 0 ? DType::bf16 : DType::f32;
          // Decode and prefill rows mixed; one starts from nothing, one has no new token; contexts cross 64 and 128.
          const Rows rows({{0, 5}, {70, 1}, {3, 0}, {0, 1}, {120, 9}, {15, 2}});
          const Cache cache(rng, rows, dtype, h.elements, tokens_per_block, turn % 2 == 0 ? 4 : 0);
          Tensor q(DType::f32, {rows.view.num_tokens, h.heads, h.k_dim}, 3), sinks(DType::f32, {h.heads});
          q.fill(rng);
          sinks.fill(rng);
          Tensor y(y_type, {rows.view.num_tokens, h.heads, h.v_dim}, 1);
          const auto args = arguments(h, o, q, cache.view, rows.view, sinks.as<float>(), y);
          const auto expected = expected_attention(args, h, rows, cache);
          for (const auto& kernel : runnable(paged_attention_op(), describe(h, o, dtype, y_type))) {
            SCOPED_TRACE(fmt::format("{} {} block {}", kernel.name(), describe(h, o, dtype, y_type).describe(),
                                     tokens_per_block));
            y.poison();
            launch(paged_attention_op(), *kernel, args, machine.context);
            ASSERT_TRUE(matches(y, expected));
          }
        }
}

TEST(PagedAttention, BlocksOutsideTheWindowAreNeverRead) {
  Rng rng(2);
  Machine machine;
  const Heads h = gqa(4, 2, 16);
  const Options o{10, 0, false};
  const Rows rows({{75, 3}});
  const Cache cache(rng, rows, DType::f32, h.elements, 4);
  Tensor q(DType::f32, {3, h.heads, h.k_dim});
  q.fill(rng);
  for (const auto& kernel : runnable(paged_attention_op(), describe(h, o, DType::f32, DType::f32))) {
    Tensor whole(DType::f32, {3, h.heads, h.v_dim}), dropped(DType::f32, {3, h.heads, h.v_dim});
    launch(paged_attention_op(), *kernel, arguments(h, o, q, cache.view, rows.view, nullptr, whole), machine.context);
    Tensor table(DType::i32, {1, cache.table.view().size(1)});
    std::copy_n(cache.table.as<int32_t>(), table.view().elements(), table.as<int32_t>());
    for (int64_t block = 0; (block + 1) * 4 <= 75 - 10 + 1; ++block) table.as<int32_t>()[block] = -1;
    PagedCache holes = cache.view;
    holes.block_table = table;
    launch(paged_attention_op(), *kernel, arguments(h, o, q, holes, rows.view, nullptr, dropped), machine.context);
    EXPECT_EQ(whole.bytes().size(), dropped.bytes().size());
    for (int64_t t = 0; t < 3; ++t) EXPECT_EQ(whole.row_bytes(t), dropped.row_bytes(t)) << kernel.name();
  }
}

// Positions [start, start + length) of one row, cut into chunks of these sizes: as rows of one step (they share the
// cache's table), or, with `apart`, one step after another.
void run_chunks(const PagedAttentionArgs& whole, const Cache& cache, int32_t start, const std::vector<int32_t>& sizes,
                bool apart, const Implementation<PagedAttentionDesc, PagedAttentionArgs>& kernel,
                ExecContext& context) {
  std::vector<RowSpec> chunks;
  int32_t at = start;
  for (int32_t size : sizes) {
    chunks.push_back({at, size});
    at += size;
  }
  const auto step = [&](const std::vector<RowSpec>& specs, int64_t first) {
    const Rows rows(specs);
    Tensor table(DType::i32, {rows.view.num_rows, cache.table.view().size(1)});
    for (int64_t r = 0; r < rows.view.num_rows; ++r)
      std::copy_n(cache.table.as<int32_t>(), table.view().size(1), table.view().row<int32_t>(r));
    PagedAttentionArgs part = whole;
    part.cache.block_table = table;
    part.rows = rows.view;
    part.q = whole.q.slice(0, first, rows.view.num_tokens);
    part.y = whole.y.slice(0, first, rows.view.num_tokens);
    launch(paged_attention_op(), kernel, part, context);
  };
  if (!apart) return step(chunks, 0);
  for (const RowSpec& chunk : chunks) step({chunk}, chunk.computed - start);
}

// Rule 1, and --reproducible: the bits of a query are a function of its own position. All queries of a row in one
// chunk, cut anywhere, one by one, beside other rows, on any number of threads.
void expect_same_bits(const Heads& h, DType dtype, const Options& o, int32_t start, int32_t length, bool check_values,
                      Rng& rng) {
  const Rows rows({{start, length}});
  Tensor q(DType::f32, {length, h.heads, h.k_dim}), sinks(DType::f32, {h.heads});
  q.fill(rng);
  sinks.fill(rng);
  const Cache cache(rng, rows, dtype, h.elements, 16);
  Tensor whole(DType::f32, {length, h.heads, h.v_dim}), parts(DType::f32, {length, h.heads, h.v_dim});
  PagedAttentionArgs args = arguments(h, o, q, cache.view, rows.view, sinks.as<float>(), whole);
  std::vector<Expected> expected;
  if (check_values) expected = expected_attention(args, h, rows, cache);
  for (const auto& kernel : runnable(paged_attention_op(), describe(h, o, dtype, DType::f32))) {
    SCOPED_TRACE(fmt::format("{} {}", kernel.name(), describe(h, o, dtype, DType::f32).describe()));
    Machine one;
    args.y = whole.poison();
    launch(paged_attention_op(), *kernel, args, one.context);
    if (check_values) {
      ASSERT_TRUE(matches(whole, expected));
    }
    for (int threads = 1; threads <= 4; ++threads) {
      Machine machine(threads);
      std::vector<int32_t> sizes;
      for (int32_t at = 0; at < length; at += sizes.back())
        sizes.push_back(std::min<int32_t>(length - at, threads == 1 ? 1 : 1 + int32_t(rng() % 40)));
      args.y = parts.poison();
      run_chunks(args, cache, start, sizes, threads % 2 == 0, *kernel, machine.context);
      for (int64_t t = 0; t < length; ++t)
        ASSERT_TRUE(parts.row_bytes(t) == whole.row_bytes(t)) << "position " << start + t << " threads " << threads;
    }
  }
}

TEST(PagedAttention, AQuerysBitsDependOnItsPositionOnly) {
  Rng rng(3);
  for (DType dtype : {DType::f32, DType::bf16})
    for (const Options& o : {Options{}, Options{40, 0, true}}) {
      for (const Heads& h : {gqa(4, 2, 32), gqa(8, 8, 20), gqa(12, 1, 64), mla(34, 24, 8)})
        expect_same_bits(h, dtype, o, 0, 140, false, rng);
      expect_same_bits(mla(16, 512, 64), dtype, o, 0, 70, false, rng);
    }
}

// Contexts that kernels cut into splits, one long enough that the splits grow on the way (at 8192).
TEST(PagedAttention, LongContextsGiveTheSameBitsAndAreRight) {
  Rng rng(9);
  for (const Options& o : {Options{}, Options{700, 0, true}}) {
    expect_same_bits(gqa(2, 1, 8), DType::f32, o, 490, 45, true, rng);
    expect_same_bits(gqa(4, 2, 4), DType::bf16, o, 1530, 20, true, rng);
    expect_same_bits(mla(3, 5, 3), DType::bf16, o, 8180, 24, true, rng);
  }
}

TEST(PagedAttention, ABlockSizeOfAnyKindGivesTheSameBits) {
  Rng rng(4);
  const Heads h = gqa(4, 2, 32);
  const Rows rows({{100, 7}});
  Tensor q(DType::f32, {7, h.heads, h.k_dim});
  q.fill(rng);
  for (const auto& kernel : runnable(paged_attention_op(), describe(h, {}, DType::bf16, DType::f32))) {
    std::vector<std::vector<std::byte>> results;
    for (int32_t tokens_per_block : {1, 3, 16, 64, 128}) {
      Rng same(5);
      Cache cache(same, rows, DType::bf16, h.elements, tokens_per_block);
      std::normal_distribution<float> normal;
      Rng contents(6);
      for (int64_t p = 0; p < 107; ++p)
        for (int64_t i = 0; i < h.elements; ++i) reinterpret_cast<bf16*>(cache.row(0, p))[i] = bf16(normal(contents));
      Tensor y(DType::f32, {7 * h.heads * h.v_dim});
      Machine machine;
      launch(paged_attention_op(), *kernel,
             arguments(h, {}, q, cache.view, rows.view, nullptr, y.view().reshape({7, h.heads, h.v_dim})),
             machine.context);
      const auto* begin = reinterpret_cast<const std::byte*>(y.as<float>());
      results.emplace_back(begin, begin + y.view().bytes());
    }
    for (const auto& result : results) EXPECT_EQ(result, results[0]) << kernel.name();
  }
}

TEST(CacheWrite, PutsBothPartsIntoTheTokensRowAndSkipsPadding) {
  Rng rng(5);
  Machine machine(2);
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [a_dim, b_dim] : std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {33, 7}, {64, 64}, {512, 64}})
      for (const auto& kernel : runnable(cache_write_op(), {a_dim, b_dim, dtype})) {
        SCOPED_TRACE(fmt::format("{} {} {}", kernel.name(), a_dim, b_dim));
        const Rows rows({{3, 4}, {0, 2}});
        Cache cache(rng, rows, dtype, a_dim + b_dim, 4, 2);
        cache.slots.as<int64_t>()[5] = -1;
        const std::vector<std::byte> untouched = cache.memory;
        Tensor a(DType::f32, {6, a_dim}, 3), b(DType::f32, {6, b_dim}, 1);
        a.fill(rng);
        b.fill(rng);
        launch(cache_write_op(), *kernel, {a, b, cache.view}, machine.context);
        for (int64_t t = 0; t < 5; ++t) {
          const int64_t r = t < 4 ? 0 : 1, token = t < 4 ? 3 + t : t - 4;
          for (int64_t i = 0; i < a_dim + b_dim; ++i) {
            const float value = float(i < a_dim ? get(a, {t, i}) : get(b, {t, i - a_dim}));
            ASSERT_EQ(cache.stored(r, token, i), dtype == DType::bf16 ? double(float(bf16(value))) : double(value));
          }
        }
        // Only the five rows changed: put them back and compare everything.
        for (int64_t t = 0; t < 5; ++t) {
          const int64_t offset = cache.slots.as<int64_t>()[t] * cache.view.row_bytes;
          std::copy_n(untouched.begin() + offset, (a_dim + b_dim) * int64_t(size_of(dtype)),
                      cache.memory.begin() + offset);
        }
        EXPECT_EQ(cache.memory, untouched);
      }
}

TEST(CacheGather, CopiesARange) {
  Rng rng(6);
  Machine machine(2);
  for (DType dtype : {DType::f32, DType::bf16})
    for (const auto& kernel : runnable(cache_gather_op(), {20, dtype})) {
      const Rows rows({{5, 1}, {30, 3}});
      const Cache cache(rng, rows, dtype, 24, 4);
      for (auto [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 33}, {7, 11}, {32, 1}, {5, 0}}) {
        Tensor y(dtype, {count, 20}, 1);
        launch(cache_gather_op(), *kernel, {cache.view, 1, first, y}, machine.context);
        ASSERT_TRUE(y.complete());
        for (int64_t i = 0; i < count; ++i)
          for (int64_t d = 0; d < 20; ++d) ASSERT_EQ(get(y, {i, d}), cache.at(1, first + i, d)) << kernel.name();
      }
    }
}

struct PieceShape {
  int64_t heads, nope, rope, v;
};

struct ExpectedPiece {
  std::vector<Expected> y, lse;
};

// Attention of `queries` queries, the first at position `before`, over all keys up to their own.
ExpectedPiece expected_pieces(const PieceShape& s, int64_t before, const TensorView& q, const TensorView& k,
                              const TensorView& k_rope, const TensorView& v, double scale) {
  ExpectedPiece expected;
  const std::vector<double> ks = doubles(k), vs = doubles(v), ropes = doubles(k_rope);
  for (int64_t i = 0; i < q.size(0); ++i)
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t keys = before + i + 1;
      std::vector<double> scores;
      double worst = 0, total = 0;
      for (int64_t p = 0; p < keys; ++p) {
        double score = 0, absolute = 0;
        const auto add = [&](double product) {
          score += product;
          absolute += std::abs(product);
        };
        for (int64_t d = 0; d < s.nope; ++d) add(get(q, {i, h, d}) * ks[size_t((p * s.heads + h) * s.nope + d)]);
        for (int64_t d = 0; d < s.rope; ++d) add(get(q, {i, h, s.nope + d}) * ropes[size_t(p * s.rope + d)]);
        scores.push_back(std::exp(score * scale));
        total += scores.back();
        worst = std::max(worst, absolute * scale);
      }
      const double score_error = double(s.nope + s.rope + 4) * worst * f32_unit, lse = std::log(total);
      expected.lse.push_back({lse, score_error + (double(keys) + 20) * f32_unit + 8 * f32_unit * std::abs(lse)});
      for (int64_t d = 0; d < s.v; ++d) {
        double value = 0, absolute = 0;
        for (int64_t p = 0; p < keys; ++p) {
          const double part = scores[size_t(p)] / total * vs[size_t((p * s.heads + h) * s.v + d)];
          value += part;
          absolute += std::abs(part);
        }
        // As paged attention, and for each merge a rounding of lse (of size up to ~8) in the exponent.
        expected.y.push_back({value, (2 * score_error + (2 * double(keys) + 60) * f32_unit) * absolute});
      }
    }
  return expected;
}

TEST(PieceAttention, PiecesMergeIntoTheWhole) {
  Rng rng(7);
  Machine machine(2);
  for (const PieceShape& s : {PieceShape{1, 1, 1, 1}, {3, 16, 8, 16}, {5, 33, 7, 20}, {3, 128, 64, 128}})
    for (DType kv : {DType::f32, DType::bf16})
      for (auto [before, queries] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {0, 20}, {90, 1}, {70, 75}}) {
        const int64_t keys = before + queries;
        Tensor q(DType::f32, {queries, s.heads, s.nope + s.rope}, 2), y(DType::f32, {queries, s.heads, s.v}, 1),
            lse(DType::f32, {queries, s.heads}), k_rope(kv, {keys, s.rope}, 3),
            kv_wide(kv, {keys, s.heads, s.nope + s.v}, 1);  // as kv_b_proj gives it: keys beside values
        q.fill(rng);
        k_rope.fill(rng);
        kv_wide.fill(rng);
        const TensorView k = kv_wide.view().slice(2, 0, s.nope), v = kv_wide.view().slice(2, s.nope, s.v);
        const float scale = 1 / std::sqrt(float(s.nope + s.rope));
        const ExpectedPiece expected = expected_pieces(s, before, q, k, k_rope, v, double(scale));
        for (const auto& kernel : runnable(piece_attention_op(), {s.heads, s.nope, s.rope, s.v, kv})) {
          SCOPED_TRACE(fmt::format("{} {} heads {}+{} v {} before {} queries {}", kernel.name(), s.heads, s.nope,
                                   s.rope, s.v, before, queries));
          y.poison();
          lse.poison();
          bool first = true;
          // The later pieces also start after some of the queries: those see none of them.
          for (auto [begin, end] :
               std::vector<std::pair<int64_t, int64_t>>{{0, keys / 3}, {keys / 3, keys / 2}, {keys / 2, keys}}) {
            launch(piece_attention_op(), *kernel,
                   {q, k.slice(0, begin, end - begin), k_rope.view().slice(0, begin, end - begin),
                    v.slice(0, begin, end - begin), before, begin, scale, first, y, lse},
                   machine.context);
            first = false;
          }
          ASSERT_TRUE(matches(y, expected.y));
          ASSERT_TRUE(matches(lse, expected.lse));
        }
      }
}

TEST(PieceAttention, AQuerysBitsDependOnNeitherItsCompanyNorTheThreads) {
  Rng rng(8);
  const PieceShape s{3, 40, 8, 24};
  for (DType kv : {DType::f32, DType::bf16})
    for (const auto& kernel : runnable(piece_attention_op(), {s.heads, s.nope, s.rope, s.v, kv})) {
      const int64_t keys = 100;
      Tensor q(DType::f32, {keys, s.heads, s.nope + s.rope}), k(kv, {keys, s.heads, s.nope}), rope(kv, {keys, s.rope}),
          v(kv, {keys, s.heads, s.v}), whole(DType::f32, {keys, s.heads, s.v}), lse(DType::f32, {keys, s.heads});
      q.fill(rng);
      k.fill(rng);
      rope.fill(rng);
      v.fill(rng);
      Machine one;
      launch(piece_attention_op(), *kernel, {q, k, rope, v, 0, 0, 0.2f, true, whole, lse}, one.context);
      for (int threads = 1; threads <= 4; ++threads) {
        Machine machine(threads);
        for (int64_t at = 0; at < keys;) {
          const int64_t count = std::min<int64_t>(keys - at, 1 + int64_t(rng() % 17));
          Tensor y(DType::f32, {count, s.heads, s.v}), part(DType::f32, {count, s.heads});
          launch(piece_attention_op(), *kernel, {q.view().slice(0, at, count), k, rope, v, at, 0, 0.2f, true, y, part},
                 machine.context);
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(y.row_bytes(i), whole.row_bytes(at + i)) << kernel.name() << " query " << at + i;
            ASSERT_EQ(part.row_bytes(i), lse.row_bytes(at + i)) << kernel.name() << " query " << at + i;
          }
          at += count;
        }
      }
    }
}

}  // namespace
}  // namespace medley
