// Attention and the paged cache on the device against the plain CPU kernels: the cache holds NaN wherever no token was
// written, and every row of a batch must have the bits it has alone.
#include "kernels/attention.h"

#include "kernels/cuda/cuda_test.h"

namespace medley::test {
namespace {

// Rows with their own contexts over shuffled pages; rows of the cache that no token owns are NaN.
struct Paged {
  TensorView row_offsets, computed, block_table, slot_mapping, cache;
  RaggedRows rows;
  PagedCache view;
};

class CudaAttentionTest : public CudaTest {
 protected:
  Paged pages(const std::vector<std::pair<int, int>>& lengths, int page, int64_t dim, DType dtype) {
    std::vector<int32_t> offsets{0}, computed;
    int64_t longest = 0, most_new = 0, blocks = 0;
    for (const auto& [before, fresh] : lengths) {
      offsets.push_back(offsets.back() + fresh);
      computed.push_back(before);
      longest = std::max<int64_t>(longest, before + fresh);
      most_new = std::max<int64_t>(most_new, fresh);
      blocks += (before + fresh + page - 1) / page;
    }
    std::vector<int32_t> free(size_t(blocks) + 3);
    for (size_t i = 0; i < free.size(); ++i) free[i] = int32_t(i);
    std::shuffle(free.begin(), free.end(), engine_);

    Paged p;
    const int64_t count = int64_t(lengths.size()), width = (longest + page - 1) / page + 1;
    p.row_offsets = ints(offsets), p.computed = ints(computed);
    p.block_table = make(DType::i32, {count, width});
    p.slot_mapping = make(DType::i64, {offsets.back()});
    p.cache = poisoned(dtype, {int64_t(free.size()) * page, dim});
    std::fill_n(p.block_table.as<int32_t>(), count * width, -1);
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < count; ++r) {
      const auto [before, fresh] = lengths[size_t(r)];
      for (int t = 0; t < before + fresh; ++t) {
        int32_t& block = p.block_table.row<int32_t>(r)[t / page];
        if (block < 0) block = free.back() * page, free.pop_back();
        const int64_t slot = block + t % page;
        for (int64_t i = 0; i < dim; ++i) put(p.cache, slot * dim + i, normal(engine_));
        if (t >= before) p.slot_mapping.as<int64_t>()[offsets[size_t(r)] + t - before] = slot;
      }
    }
    p.rows = {p.row_offsets, p.computed, count, offsets.back(), most_new, longest};
    p.view = {static_cast<std::byte*>(p.cache.data),
              dtype,
              dim * int64_t(size_of(dtype)),
              page,
              p.block_table,
              p.slot_mapping};
    return p;
  }
  PagedAttentionArgs up_args(const PagedAttentionArgs& a, const Paged& p) {
    PagedAttentionArgs d = a;
    d.q = up(a.q), d.y = up(a.y);
    d.cache.base = static_cast<std::byte*>(up(p.cache).data);
    d.cache.block_table = up(p.block_table), d.cache.slot_mapping = up(p.slot_mapping);
    d.rows.row_offsets = up(p.row_offsets), d.rows.computed = up(p.computed);
    if (a.sinks != nullptr)
      d.sinks = reinterpret_cast<const float*>(up_bytes(a.sinks, size_t(a.q.size(1)) * sizeof(float)));
    return d;
  }
  // Row r of `d` as a step of its own.
  PagedAttentionArgs only(const PagedAttentionArgs& d, const Paged& p, int64_t r) {
    PagedAttentionArgs one = d;
    const int32_t first = p.row_offsets.as<int32_t>()[r], fresh = p.row_offsets.as<int32_t>()[r + 1] - first;
    const int32_t before = p.computed.as<int32_t>()[r];
    one.q = d.q.slice(0, first, fresh);
    one.y = up(poisoned(d.y.dtype, {fresh, d.y.size(1), d.y.size(2)}));
    one.cache.block_table = d.cache.block_table.slice(0, r, 1);
    one.rows = {up(ints({0, fresh})), d.rows.computed.slice(0, r, 1), 1, fresh, fresh, before + fresh};
    return one;
  }
  void check(const PagedAttentionDesc& desc, const PagedAttentionArgs& a, const Paged& p, Level level,
             std::string_view kernel, double bound) {
    const PagedAttentionArgs d = up_args(a, p);
    run_host(paged_attention_op(), desc, a);
    EXPECT_EQ(run_device(paged_attention_op(), desc, d, level), kernel);
    const TensorView y = down(d.y);
    EXPECT_LT(error(y, a.y), bound) << desc.describe();
    for (int64_t r = 0; r < a.rows.num_rows; ++r) {
      const PagedAttentionArgs one = only(d, p, r);
      if (one.rows.num_tokens == 0) continue;
      run_device(paged_attention_op(), desc, one, level);
      const int32_t first = p.row_offsets.as<int32_t>()[r];
      EXPECT_TRUE(same_bits(down(one.y), y.slice(0, first, one.rows.num_tokens))) << desc.describe() << ", row " << r;
      EXPECT_LT(error(y.slice(0, first, one.rows.num_tokens), a.y.slice(0, first, one.rows.num_tokens)), bound)
          << desc.describe() << ", row " << r;
    }
  }
};

TEST_F(CudaAttentionTest, CacheWriteAndGather) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Paged p = pages({{5, 3}, {0, 20}, {17, 1}}, 16, 40, dtype);
    p.slot_mapping.as<int64_t>()[4] = -1;
    CacheWriteArgs a{.a = random(DType::f32, {24, 30}), .b = random(DType::f32, {24, 10}), .cache = p.view};
    CacheWriteArgs d = a;
    d.a = up(a.a), d.b = up(a.b);
    const TensorView cache = up(p.cache);
    d.cache.base = static_cast<std::byte*>(cache.data), d.cache.slot_mapping = up(p.slot_mapping);
    d.cache.block_table = up(p.block_table);
    run_host(cache_write_op(), {30, 10, dtype}, a);
    run_device(cache_write_op(), {30, 10, dtype}, d);
    EXPECT_TRUE(same_bits(down(cache), p.cache));

    CacheGatherArgs g{.cache = p.view, .row = 1, .first = 3, .y = poisoned(dtype, {11, 36})};
    CacheGatherArgs gd = g;
    gd.cache = d.cache, gd.y = up(g.y);
    run_host(cache_gather_op(), {36, dtype}, g);
    run_device(cache_gather_op(), {36, dtype}, gd);
    EXPECT_TRUE(same_bits(down(gd.y), g.y));
  }
}

TEST_F(CudaAttentionTest, PagedAttention) {
  struct Case {
    int64_t heads, kv_heads, k_dim, v_dim;
    DType cache, y;
    int window;
    bool sinks, softcap, mla;
  };
  const Case cases[] = {{8, 2, 64, 64, DType::f32, DType::f32, 0, false, false, false},
                        {4, 4, 128, 128, DType::bf16, DType::bf16, 0, false, false, false},
                        {6, 2, 16, 24, DType::bf16, DType::f32, 9, true, true, false},
                        {20, 1, 40, 32, DType::f32, DType::f32, 0, false, false, true},
                        {16, 1, 576, 512, DType::bf16, DType::f32, 0, false, false, true}};
  for (const Case& c : cases) {
    const int64_t dim = c.mla ? c.k_dim : c.kv_heads * (c.k_dim + c.v_dim);
    const Paged p = pages({{0, 1}, {40, 1}, {0, 37}, {63, 5}, {0, 0}, {31, 1}}, 16, dim, c.cache);
    const TensorView sinks = random(DType::f32, {c.heads});
    const PagedAttentionArgs a{.q = random(DType::f32, {p.rows.num_tokens, c.heads, c.k_dim}),
                               .cache = p.view,
                               .rows = p.rows,
                               .kv_heads = c.kv_heads,
                               .v_dim = c.v_dim,
                               .v_offset = c.mla ? 0 : c.kv_heads * c.k_dim,
                               .scale = 1.0f / std::sqrt(float(c.k_dim)),
                               .window = c.window,
                               .softcap = c.softcap ? 5.0f : 0.0f,
                               .sinks = c.sinks ? sinks.as<float>() : nullptr,
                               .y = poisoned(c.y, {p.rows.num_tokens, c.heads, c.v_dim})};
    const PagedAttentionDesc desc{c.heads, c.kv_heads, c.k_dim,      c.v_dim, 0,        a.v_offset,
                                  c.cache, c.y,        c.window > 0, c.sinks, c.softcap};
    check(desc, a, p, Level::cuda, "cuda.paged_attention", c.y == DType::f32 ? f32_error : bf16_output_error);
  }
}

TEST_F(CudaAttentionTest, GroupedQueriesOnTensorCores) {
  struct Case {
    int64_t heads, kv_heads, dim;
    int page, window;
    bool sinks;
    DType y;
    std::vector<std::pair<int, int>> lengths;
  };
  // Lengths around the buffer (64, 128), the piece (512, then 1024) and the 128 query rows of a block; a few new tokens
  // and many.
  const Case cases[] = {
      {32, 8, 128, 64, 0, false, DType::bf16, {{0, 1}, {63, 1}, {64, 1}, {511, 1}, {512, 1}, {510, 4}, {1500, 1}}},
      {8, 2, 128, 16, 0, false, DType::f32, {{0, 200}, {300, 37}, {0, 5}, {0, 0}, {700, 1}, {8190, 1}, {8192, 2}}},
      {4, 4, 64, 48, 0, false, DType::f32, {{0, 129}, {1000, 3}, {127, 1}, {128, 1}, {64, 300}}},
      {16, 2, 64, 32, 100, true, DType::f32, {{0, 150}, {1000, 3}, {99, 1}, {100, 1}, {511, 4}, {700, 40}, {0, 1}}},
      {64, 1, 128, 64, 0, false, DType::f32, {{600, 1}, {30, 2}, {0, 9}}},
      {20, 4, 128, 16, 513, true, DType::bf16, {{2000, 1}, {100, 33}, {514, 1}}}};
  for (const Case& c : cases) {
    const Paged p = pages(c.lengths, c.page, 2 * c.kv_heads * c.dim, DType::bf16);
    const TensorView sinks = random(DType::f32, {c.heads});
    PagedAttentionArgs a{.q = random(DType::f32, {p.rows.num_tokens, c.heads, c.dim}),
                         .cache = p.view,
                         .rows = p.rows,
                         .kv_heads = c.kv_heads,
                         .v_dim = c.dim,
                         .v_offset = c.kv_heads * c.dim,
                         .scale = 1.5f / std::sqrt(float(c.dim)),
                         .window = c.window,
                         .sinks = c.sinks ? sinks.as<float>() : nullptr,
                         .y = poisoned(c.y, {p.rows.num_tokens, c.heads, c.dim})};
    for (int64_t i = 0; i < a.q.elements(); ++i) put(a.q, i, float(bf16(at(a.q, i))));  // so that only weights round
    const PagedAttentionDesc desc{c.heads,     c.kv_heads, c.dim,        c.dim,   0,    a.v_offset,
                                  DType::bf16, c.y,        c.window > 0, c.sinks, false};
    check(desc, a, p, Level::sm90, "sm90.gqa_attention", bf16_operands_error);
  }
}

// Lengths on both sides of every step and piece, one new token each.
std::vector<std::pair<int, int>> spread_lengths(int count) {
  std::vector<std::pair<int, int>> lengths;
  for (int i = 0; i < count; ++i) lengths.emplace_back(std::max(0, i / 2 * 19 % 26 * 64 - 1 + i % 2), 1);
  return lengths;
}

TEST_F(CudaAttentionTest, MlaDecodeOnTensorCores) {
  struct Case {
    int64_t heads;
    int page;
    DType y;
    std::vector<std::pair<int, int>> lengths;
  };
  // Lengths around the block (64), the pair (128) and the piece (512 or 2048); several new tokens; a short prefill.
  const Case cases[] = {
      {16, 64, DType::f32, {{0, 1}, {63, 1}, {64, 1}, {126, 1}, {127, 1}, {128, 1}, {511, 1}, {512, 1}, {1500, 1}}},
      {16, 16, DType::bf16, {{1000, 1}, {5, 1}, {700, 1}}},
      {16, 48, DType::f32, {{1000, 3}, {509, 6}, {0, 0}, {77, 1}, {0, 21}}},
      {24, 32, DType::f32, {{130, 2}, {640, 9}}},
      // Few query rows: a piece of 512 keys is spread over a cluster, in steps of 64, if the step is small (each row
      // alone is), and walked through by one block if it is not (the last of these cases).
      {16, 64, DType::bf16, {{0, 1}, {62, 1}, {447, 1}, {448, 1}, {512, 1}, {4095, 1}, {9000, 1}}},
      {8, 16, DType::f32, {{510, 2}, {0, 2}, {63, 2}, {1023, 2}, {1500, 1}, {0, 0}, {5000, 2}}},
      {3, 48, DType::f32, {{509, 5}, {60, 5}, {2047, 3}}},
      {16, 32, DType::f32, {{20000, 1}, {3000, 1}}},
      {16, 64, DType::f32, spread_lengths(160)},
      {128, 64, DType::f32, {{2046, 1}, {2047, 1}, {2048, 2}, {3000, 1}, {0, 5}}},
      {64, 16, DType::bf16, {{2500, 1}, {17, 1}}},
      // As many as make a block take all pieces of its queries, and add them itself.
      {16, 16, DType::f32, std::vector<std::pair<int, int>>(150, {611, 1})},
      {16, 16, DType::f32, std::vector<std::pair<int, int>>(140, {511, 2})},
      {128, 64, DType::f32, std::vector<std::pair<int, int>>(70, {2060, 1})}};
  for (const Case& c : cases) {
    const Paged p = pages(c.lengths, c.page, 576, DType::bf16);
    PagedAttentionArgs a{.q = random(DType::f32, {p.rows.num_tokens, c.heads, 576}),
                         .cache = p.view,
                         .rows = p.rows,
                         .kv_heads = 1,
                         .v_dim = 512,
                         .scale = 0.1147f,
                         .y = poisoned(c.y, {p.rows.num_tokens, c.heads, 512})};
    for (int64_t i = 0; i < a.q.elements(); ++i) put(a.q, i, float(bf16(at(a.q, i))));  // so that only weights round
    const PagedAttentionDesc desc{.heads = c.heads, .kv_heads = 1, .k_dim = 576, .v_dim = 512, .y = c.y};
    check(desc, a, p, Level::sm90, "sm90.mla_decode", bf16_operands_error);
  }
}

struct PieceCase {
  int64_t queries, heads, nope, rope, v_dim, q_position;
  DType dtype;
  std::vector<std::pair<int64_t, int64_t>> pieces;  // first key, keys; ascending
};

class CudaPieceTest : public CudaTest {
 protected:
  static TensorView heads_part(const TensorView& kv, int64_t first_key, int64_t keys, int64_t begin, int64_t count) {
    TensorView part = kv.slice(0, first_key, keys);
    part.shape[2] = count;
    part.data = static_cast<std::byte*>(part.data) + begin * int64_t(size_of(kv.dtype));
    return part;
  }
  // All pieces one after the other against the plain kernel, and each tenth query alone: the same bits.
  void check(const PieceCase& c, Level level, const std::string& kernel, double bound) {
    const int64_t keys = c.pieces.back().first + c.pieces.back().second;
    const TensorView kv = random(c.dtype, {keys, c.heads, c.nope + c.v_dim}), rope = random(c.dtype, {keys, c.rope});
    const TensorView kv_d = up(kv), rope_d = up(rope);
    const PieceAttentionDesc desc{c.heads, c.nope, c.rope, c.v_dim, c.dtype};
    PieceAttentionArgs a{.q = random(DType::f32, {c.queries, c.heads, c.nope + c.rope}),
                         .q_position = c.q_position,
                         .scale = 0.09f,
                         .y = poisoned(DType::f32, {c.queries, c.heads, c.v_dim}),
                         .lse = poisoned(DType::f32, {c.queries, c.heads})};
    for (int64_t i = 0; level == Level::sm90 && i < a.q.elements(); ++i)
      put(a.q, i, float(bf16(at(a.q, i))));  // so that only weights round
    PieceAttentionArgs d = a;
    d.q = up(a.q), d.y = up(a.y), d.lse = up(a.lse);
    PieceAttentionArgs alone = d;
    alone.y = up(a.y), alone.lse = up(a.lse);
    for (const auto& [first, count] : c.pieces) {
      const auto piece = [&](PieceAttentionArgs& args, const TensorView& all, const TensorView& shared) {
        args.first = first == 0;
        args.k_position = first;
        args.k_nope = heads_part(all, first, count, 0, c.nope);
        args.v = heads_part(all, first, count, c.nope, c.v_dim);
        args.k_rope = shared.slice(0, first, count);
      };
      piece(a, kv, rope);
      piece(d, kv_d, rope_d);
      run_host(piece_attention_op(), desc, a);
      EXPECT_EQ(run_device(piece_attention_op(), desc, d, level), kernel);
      EXPECT_LT(error(down(d.y), a.y), bound) << "keys from " << first;
      const TensorView lse = down(d.lse);
      for (int64_t i = 0; i < lse.elements(); ++i) {
        if (std::isinf(at(a.lse, i))) {
          EXPECT_EQ(at(lse, i), at(a.lse, i)) << "a query that sees no key yet";
        } else {
          EXPECT_NEAR(at(lse, i), at(a.lse, i), bound * 10) << i;
        }
      }
      for (int64_t query = 0; query < c.queries; query += 10) {
        PieceAttentionArgs one = alone;
        piece(one, kv_d, rope_d);
        one.q = d.q.slice(0, query, 1), one.q_position = c.q_position + query;
        one.y = alone.y.slice(0, query, 1), one.lse = alone.lse.slice(0, query, 1);
        run_device(piece_attention_op(), desc, one, level);
        const TensorView y = down(d.y.slice(0, query, 1)), y_alone = down(one.y);
        for (int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(at(y, i), at(y_alone, i)) << "query " << query << " " << i;
      }
    }
  }
};

TEST_F(CudaPieceTest, Portable) {
  for (DType dtype : {DType::f32, DType::bf16})
    check({21, 3, 48, 16, 40, 40, dtype, {{0, 33}, {33, 20}, {53, 17}}}, Level::cuda, "cuda.piece_attention",
          f32_error);
}

TEST_F(CudaPieceTest, TensorCores) {
  const std::vector<std::pair<int64_t, int64_t>> odd{{0, 512}, {512, 200}, {712, 57}, {769, 1}};
  for (const PieceCase& c : {PieceCase{770, 3, 128, 64, 128, 0, DType::bf16, odd},    // some see nothing of a piece
                             PieceCase{70, 2, 128, 64, 128, 700, DType::bf16, odd},   // half a block, context before
                             PieceCase{130, 5, 128, 64, 128, 640, DType::bf16, odd},  // two rows more than a block
                             PieceCase{1, 1, 128, 64, 128, 769, DType::bf16, odd}})
    check(c, Level::sm90, "sm90.piece_attention", bf16_operands_error);
}

}  // namespace
}  // namespace medley::test
