// Linear attention, Mamba2 by chunks, the indexer's choice and sparse attention on the device against the plain CPU
// kernels; every row of a batch must have the bits it has alone.
#include "kernels/linear_attention.h"

#include "kernels/cuda/cuda_test.h"
#include "kernels/sparse_attention.h"
#include "kernels/state_space.h"

namespace medley::test {
namespace {

// Row 1 of rows(): tokens 9 to 12, in place.
constexpr int64_t lone_first = 9, lone_tokens = 4;

class CudaSequenceTest : public CudaStateTest {
 protected:
  // The lone row as a step of its own; `states` anew.
  void alone(const RaggedRows& rows, const StateSlots& slots, const TensorView& states, RaggedRows& lone_rows,
             StateSlots& lone_slots) {
    lone_rows = rows, lone_slots = slots;
    lone_rows.row_offsets = up(ints({0, int32_t(lone_tokens)})), lone_rows.computed = rows.computed.slice(0, 1, 1);
    lone_rows.num_rows = 1, lone_rows.num_tokens = lone_rows.max_new_tokens = lone_tokens;
    lone_slots.base = static_cast<std::byte*>(up(states).data), ++lone_slots.read, ++lone_slots.write;
  }
};

TEST_F(CudaSequenceTest, GatedDelta) {
  struct Case {
    int64_t heads, key_heads, k_dim, v_dim;
    bool per_channel;
  };
  for (const Case c : {Case{4, 2, 128, 128, false}, Case{2, 2, 128, 128, true}, Case{6, 3, 16, 20, false},
                       Case{1, 1, 60, 100, true}, Case{2, 1, 200, 33, false}, Case{2, 2, 200, 64, true}}) {
    const int64_t decays = c.per_channel ? c.k_dim : 1;
    const TensorView rate = random(DType::f32, {c.heads}), bias = random(DType::f32, {c.heads, decays});
    for (int64_t i = 0; i < c.heads; ++i) put(rate, i, -std::exp(at(rate, i)));
    GatedDeltaArgs a{.q = random(DType::f32, {17, c.key_heads, c.k_dim}),
                     .k = random(DType::f32, {17, c.key_heads, c.k_dim}),
                     .v = random(DType::f32, {17, c.heads, c.v_dim}),
                     .dt = random(DType::f32, {17, c.heads, decays}),
                     .beta = random(DType::f32, {17, c.heads}),
                     .a = rate.as<float>(),
                     .dt_bias = bias.as<float>(),
                     .scale = 0.09f,
                     .y = poisoned(DType::f32, {17, c.heads, c.v_dim})};
    GatedDeltaArgs d = a;
    TensorView states, device_states;
    rows(c.heads * c.k_dim * c.v_dim * 4, a.rows, a.state, states, d.rows, d.state, device_states);
    d.q = up(a.q), d.k = up(a.k), d.v = up(a.v), d.dt = up(a.dt), d.beta = up(a.beta), d.y = up(a.y);
    d.a = up(rate, a.a), d.dt_bias = up(bias, a.dt_bias);
    GatedDeltaArgs one = d;
    alone(d.rows, d.state, states, one.rows, one.state);
    for (TensorView* view : {&one.q, &one.k, &one.v, &one.dt, &one.beta})
      *view = view->slice(0, lone_first, lone_tokens);
    one.y = up(a.y.slice(0, lone_first, lone_tokens));
    const GatedDeltaDesc desc{c.heads, c.key_heads, c.k_dim, c.v_dim, c.per_channel};
    run_host(gated_delta_op(), desc, a);
    run_device(gated_delta_op(), desc, d);
    run_device(gated_delta_op(), desc, one);
    EXPECT_LT(error(down(d.y), a.y), f32_error) << desc.describe();
    EXPECT_LT(error(down(device_states), states), f32_error) << desc.describe();
    EXPECT_TRUE(same_bits(down(d.y.slice(0, lone_first, lone_tokens)), down(one.y))) << desc.describe();
  }
}

// Rows of many new tokens, which go by chunks, beside rows of few.
TEST_F(CudaSequenceTest, GatedDeltaByChunks) {
  struct Case {
    int64_t heads, key_heads, v_dim;
  };
  const std::vector<int32_t> fresh{1, 200, 64, 63, 0, 129}, computed{5, 0, 7, 9, 3, 1};
  std::vector<int32_t> offsets{0};
  for (int32_t n : fresh) offsets.push_back(offsets.back() + n);
  const int64_t tokens = offsets.back();
  for (const Case c : {Case{4, 2, 128}, Case{3, 3, 64}}) {
    const TensorView rate = random(DType::f32, {c.heads}), bias = random(DType::f32, {c.heads, 1});
    for (int64_t i = 0; i < c.heads; ++i) put(rate, i, -std::exp(at(rate, i)) * (i == 1 ? 20.0f : 0.2f));
    const int32_t granules = int32_t(c.heads * 128 * c.v_dim * 4 / state_granule);
    const TensorView states = random(DType::f32, {8 * int64_t(granules) * state_granule / 4});
    const TensorView read = ints({0, -1, 2 * granules, 3 * granules, 4 * granules, 5 * granules});
    const TensorView write = ints({0, granules, 2 * granules, 7 * granules, -1, 6 * granules});
    GatedDeltaArgs a{.q = random(DType::f32, {tokens, c.key_heads, 128}),
                     .k = random(DType::f32, {tokens, c.key_heads, 128}),
                     .v = random(DType::f32, {tokens, c.heads, c.v_dim}),
                     .dt = random(DType::f32, {tokens, c.heads, 1}),
                     .beta = random(DType::f32, {tokens, c.heads}),
                     .a = rate.as<float>(),
                     .dt_bias = bias.as<float>(),
                     .scale = 0.09f,
                     .rows = {ints(offsets), ints(computed), 6, tokens, 200, 200},
                     .state = {static_cast<std::byte*>(states.data), read.as<int32_t>(), write.as<int32_t>()},
                     .y = poisoned(DType::f32, {tokens, c.heads, c.v_dim})};
    GatedDeltaArgs d = a;
    const TensorView device_states = up(states);
    d.rows.row_offsets = up(a.rows.row_offsets), d.rows.computed = up(a.rows.computed);
    d.state = {static_cast<std::byte*>(device_states.data), up(read, a.state.read), up(write, a.state.write)};
    d.q = up(a.q), d.k = up(a.k), d.v = up(a.v), d.dt = up(a.dt), d.beta = up(a.beta), d.y = up(a.y);
    d.a = up(rate, a.a), d.dt_bias = up(bias, a.dt_bias);
    GatedDeltaArgs one = d;  // the row of 200 by itself, which begins with no state
    one.rows = {up(ints({0, 200})), d.rows.computed.slice(0, 1, 1), 1, 200, 200, 200};
    one.state.read = d.state.read + 1, one.state.write = up(ints({-1}), one.state.read);
    for (TensorView* view : {&one.q, &one.k, &one.v, &one.dt, &one.beta}) *view = view->slice(0, 1, 200);
    one.y = up(a.y.slice(0, 1, 200));
    const GatedDeltaDesc desc{c.heads, c.key_heads, 128, c.v_dim, false};
    run_host(gated_delta_op(), desc, a);
    run_device(gated_delta_op(), desc, d);
    run_device(gated_delta_op(), desc, one);
    const TensorView y = down(d.y), after = down(device_states);
    constexpr double f16_operands_error = 1e-3;
    for (int64_t r = 0; r < 6; ++r) {
      if (fresh[size_t(r)] == 0) continue;
      EXPECT_LT(
          error(y.slice(0, offsets[size_t(r)], fresh[size_t(r)]), a.y.slice(0, offsets[size_t(r)], fresh[size_t(r)])),
          fresh[size_t(r)] < 64 ? f32_error : f16_operands_error)
          << desc.describe() << ", row " << r;
      if (const int32_t slot = write.as<int32_t>()[r]; slot >= 0) {
        const int64_t first = int64_t(slot) * state_granule / 4, count = int64_t(granules) * state_granule / 4;
        EXPECT_LT(error(after.slice(0, first, count), states.slice(0, first, count)), f16_operands_error)
            << desc.describe() << ", row " << r;
      }
    }
    EXPECT_TRUE(same_bits(down(one.y), y.slice(0, 1, 200))) << desc.describe();

    // Where it is asked for, the row has the same bits in two steps.
    GatedDeltaArgs whole = one;
    whole.reproducible = true;
    whole.y = up(poisoned(DType::f32, {200, c.heads, c.v_dim}));
    run_device(gated_delta_op(), desc, whole);
    const TensorView parts = up(poisoned(DType::f32, {200, c.heads, c.v_dim}));
    for (int32_t first : {0, 100}) {
      GatedDeltaArgs part = whole;
      part.y = parts;
      for (TensorView* view : {&part.q, &part.k, &part.v, &part.dt, &part.beta, &part.y})
        *view = view->slice(0, first, 100);
      part.rows = {up(ints({0, 100})), whole.rows.computed, 1, 100, 100, 200};
      part.state.read = up(ints({first == 0 ? -1 : granules}), whole.state.read);
      part.state.write = up(ints({granules}), whole.state.read);
      run_device(gated_delta_op(), desc, part);
    }
    EXPECT_TRUE(same_bits(down(whole.y), down(parts))) << desc.describe();
  }
}

// Mamba2's scan of rows of many new tokens, which go by chunks, beside rows of few.
TEST_F(CudaSequenceTest, SsdByChunks) {
  struct Case {
    int64_t heads, states, groups;
    float x_scale, b_scale;
  };
  const std::vector<int32_t> fresh{1, 200, 64, 63, 0, 65, 1000, 128}, computed{5, 0, 7, 9, 3, 1, 50, 2};
  const int64_t num_rows = int64_t(fresh.size());
  std::vector<int32_t> offsets{0};
  for (int32_t n : fresh) offsets.push_back(offsets.back() + n);
  const int64_t tokens = offsets.back();
  for (const Case c : {Case{6, 128, 2, 1, 1}, Case{3, 64, 1, 1e-6f, 1}, Case{2, 256, 2, 300, 1e-4f}}) {
    const SsdScanDesc desc{c.heads, 64, c.states, c.groups};
    const TensorView rate = random(DType::f32, {c.heads}), bias = random(DType::f32, {c.heads}),
                     skip = random(DType::f32, {c.heads});
    // The first head forgets little, the second nearly all.
    for (int64_t i = 0; i < c.heads; ++i)
      put(rate, i, -std::exp(at(rate, i)) * (i == 0 ? 0.01f : i == 1 ? 20.0f : 0.2f));
    const int32_t granules = int32_t(c.heads * 64 * c.states * 4 / state_granule);
    const TensorView states = random(DType::f32, {10 * int64_t(granules) * state_granule / 4}, c.x_scale * c.b_scale);
    // No state before; in place; from one slot to another; not written.
    const TensorView read = ints({0, -1, 2 * granules, 3 * granules, 4 * granules, 5 * granules, 6 * granules, -1});
    const TensorView write =
        ints({0, granules, 2 * granules, 7 * granules, -1, 8 * granules, 6 * granules, 9 * granules});
    // x, B and C side by side, as the convolution leaves them.
    const int64_t inner = c.heads * 64, bc = c.groups * c.states;
    const TensorView convolved = random(DType::f32, {tokens, inner + 2 * bc});
    SsdScanArgs a{.x = convolved.slice(1, 0, inner).split_last(c.heads, 64),
                  .dt = random(DType::f32, {tokens, c.heads}),
                  .b = convolved.slice(1, inner, bc).split_last(c.groups, c.states),
                  .c = convolved.slice(1, inner + bc, bc).split_last(c.groups, c.states),
                  .a = rate.as<float>(),
                  .d = skip.as<float>(),
                  .dt_bias = bias.as<float>(),
                  .dt_min = 0.001f,
                  .dt_max = 2.0f,
                  .rows = {ints(offsets), ints(computed), num_rows, tokens, 1000, 1050},
                  .state = {static_cast<std::byte*>(states.data), read.as<int32_t>(), write.as<int32_t>()},
                  .y = poisoned(DType::f32, {tokens, c.heads, 64})};
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < inner + bc; ++i) convolved.row<float>(t)[i] *= i < inner ? c.x_scale : c.b_scale;
    SsdScanArgs d = a;
    const TensorView before = up(states), device_convolved = up(convolved);
    d.rows.row_offsets = up(a.rows.row_offsets), d.rows.computed = up(a.rows.computed);
    d.state = {nullptr, up(read, a.state.read), up(write, a.state.write)};
    d.x = device_convolved.slice(1, 0, inner).split_last(c.heads, 64);
    d.b = device_convolved.slice(1, inner, bc).split_last(c.groups, c.states);
    d.c = device_convolved.slice(1, inner + bc, bc).split_last(c.groups, c.states);
    d.dt = up(a.dt), d.a = up(rate, a.a), d.d = up(skip, a.d), d.dt_bias = up(bias, a.dt_bias);

    // Kernels by chunks are those that need a workspace.
    const auto launch = [&](SsdScanArgs args, bool by_chunks) {
      Workspace workspace(Device::cuda);
      ExecContext context{pool_, workspace};
      args.y = up(poisoned(DType::f32, {args.x.size(0), c.heads, 64}));
      const TensorView after = up(states);
      copy_bytes(after.data, before.data, before.bytes());
      args.state.base = static_cast<std::byte*>(after.data);
      KernelSelector(Device::cuda, Level::cuda).resolve(ssd_scan_op(), desc)(args, context);
      synchronize();
      EXPECT_EQ(workspace.capacity() > 0, by_chunks) << desc.describe();
      return std::pair(down(args.y), down(after));
    };
    const int64_t slot_size = int64_t(granules) * state_granule / 4;
    const auto row_of = [&](const TensorView& y, int64_t r) {
      return y.slice(0, offsets[size_t(r)], fresh[size_t(r)]);
    };
    const auto [y, after] = launch(d, true);
    SsdScanArgs by_tokens = d;
    by_tokens.reproducible = true;
    const auto [token_y, token_after] = launch(by_tokens, false);
    run_host(ssd_scan_op(), desc, a);
    constexpr double split_operands_error = 4e-6;
    for (int64_t r = 0; r < num_rows; ++r) {
      if (fresh[size_t(r)] == 0) continue;
      const bool chunked = fresh[size_t(r)] >= 64;
      EXPECT_LT(error(row_of(y, r), row_of(a.y, r)), chunked ? split_operands_error : f32_error)
          << desc.describe() << ", row " << r;
      EXPECT_LT(error(row_of(token_y, r), row_of(a.y, r)), f32_error) << desc.describe() << ", row " << r;
      EXPECT_NE(same_bits(row_of(y, r), row_of(token_y, r)), chunked) << desc.describe() << ", row " << r;
      const int64_t first = int64_t(write.as<int32_t>()[r]) * state_granule / 4;
      if (first >= 0) {
        EXPECT_LT(error(after.slice(0, first, slot_size), states.slice(0, first, slot_size)), split_operands_error)
            << desc.describe() << ", row " << r;
      }
      SsdScanArgs one = d;
      one.rows = {
          up(ints({0, fresh[size_t(r)]})), d.rows.computed.slice(0, r, 1), 1, fresh[size_t(r)], fresh[size_t(r)], 1050};
      one.state.read += r, one.state.write += r;
      for (TensorView* view : {&one.x, &one.dt, &one.b, &one.c}) *view = row_of(*view, r);
      const auto [alone, alone_after] = launch(one, chunked);
      EXPECT_TRUE(same_bits(alone, row_of(y, r))) << desc.describe() << ", row " << r;
      if (first >= 0) {
        EXPECT_TRUE(same_bits(alone_after.slice(0, first, slot_size), after.slice(0, first, slot_size)))
            << desc.describe() << ", row " << r;
      }
    }
  }
}

TEST_F(CudaSequenceTest, Lightning) {
  struct Case {
    int64_t heads, k_dim, v_dim, block;
  };
  // Blocks that end inside a row's new tokens, at their start, and beyond them.
  for (const Case c : {Case{3, 64, 64, 0}, Case{2, 128, 100, 0}, Case{2, 40, 24, 4}, Case{2, 128, 128, 3},
                       Case{1, 200, 20, 16}, Case{2, 64, 130, 5}}) {
    const TensorView decay = random(DType::f32, {c.heads}, 0.3f);
    const int64_t n = std::max<int64_t>(c.block, 1);
    const TensorView query = random(DType::f32, {c.heads, n}), key = random(DType::f32, {c.heads, n}),
                     diagonal = random(DType::f32, {c.heads, n, n}), block_decay = random(DType::f32, {c.heads});
    LightningArgs a{.q = random(DType::f32, {17, c.heads, c.k_dim}),
                    .k = random(DType::f32, {17, c.heads, c.k_dim}, 0.2f),
                    .v = random(DType::f32, {17, c.heads, c.v_dim}),
                    .decay = decay.as<float>(),
                    .y = poisoned(DType::f32, {17, c.heads, c.v_dim})};
    if (c.block > 0)
      a.tables = {c.block, query.as<float>(), key.as<float>(), diagonal.as<float>(), block_decay.as<float>()};
    LightningArgs d = a;
    TensorView states, device_states;
    rows(lightning_state_bytes(c.heads, c.k_dim, c.v_dim, c.block), a.rows, a.state, states, d.rows, d.state,
         device_states);
    d.q = up(a.q), d.k = up(a.k), d.v = up(a.v), d.y = up(a.y), d.decay = up(decay, a.decay);
    if (c.block > 0) {
      d.tables.query = up(query, a.tables.query), d.tables.key = up(key, a.tables.key);
      d.tables.diagonal = up(diagonal, a.tables.diagonal);
      d.tables.block_decay = up(block_decay, a.tables.block_decay);
    }
    LightningArgs one = d;
    alone(d.rows, d.state, states, one.rows, one.state);
    for (TensorView* view : {&one.q, &one.k, &one.v}) *view = view->slice(0, lone_first, lone_tokens);
    one.y = up(a.y.slice(0, lone_first, lone_tokens));
    const LightningDesc desc{c.heads, c.k_dim, c.v_dim, c.block};
    run_host(lightning_op(), desc, a);
    run_device(lightning_op(), desc, d);
    run_device(lightning_op(), desc, one);
    EXPECT_LT(error(down(d.y), a.y), f32_error) << desc.describe();
    EXPECT_LT(error(down(device_states), states), f32_error) << desc.describe();
    EXPECT_TRUE(same_bits(down(d.y.slice(0, lone_first, lone_tokens)), down(one.y))) << desc.describe();
  }
}

class CudaSparseTest : public CudaTest {
 protected:
  // Rows of 1 to 700 tokens over shuffled pages of 16 whose elements are small integers, so that scores are exact.
  RaggedRows rows(int64_t dim, DType dtype, PagedCache& cache, RaggedRows& device_rows, PagedCache& device_cache) {
    const std::vector<int32_t> computed{0, 690, 250, 0}, fresh{1, 2, 9, 40};
    std::vector<int32_t> offsets{0}, order(200);
    for (int32_t n : fresh) offsets.push_back(offsets.back() + n);
    for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i) * 16;
    std::shuffle(order.begin(), order.end(), engine_);
    const TensorView table = make(DType::i32, {4, 44}), memory = poisoned(dtype, {200 * 16, dim + 3});
    std::copy_n(order.begin(), 4 * 44, table.as<int32_t>());
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t t = 0; t < computed[size_t(r)] + fresh[size_t(r)]; ++t)
        for (int64_t i = 0; i < dim; ++i)
          put(memory, (table.row<int32_t>(r)[t / 16] + t % 16) * (dim + 3) + i, float(pick(-2, 2)));
    const RaggedRows host{ints(offsets), ints(computed), 4, offsets.back(), 40, 692};
    cache = {static_cast<std::byte*>(memory.data), dtype, (dim + 3) * int64_t(size_of(dtype)), 16, table, {}};
    device_rows = host, device_cache = cache;
    device_rows.row_offsets = up(host.row_offsets), device_rows.computed = up(host.computed);
    device_cache.base = static_cast<std::byte*>(up(memory).data), device_cache.block_table = up(table);
    return host;
  }
};

TEST_F(CudaSparseTest, IndexSelectChoosesTheSameKeys) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (const auto& [heads, dim] : std::vector<std::pair<int64_t, int64_t>>{{1, 5}, {64, 128}, {40, 36}})
      for (int64_t top_k : {1, 30, 256, 2048}) {
        IndexSelectArgs a{.top_k = top_k}, d;
        d = a;
        a.rows = rows(dim, dtype, a.cache, d.rows, d.cache);
        const int64_t tokens = a.rows.num_tokens;
        a.q = make(DType::f32, {tokens, heads, dim}), a.weights = make(DType::f32, {tokens, heads});
        for (int64_t i = 0; i < a.q.elements(); ++i) put(a.q, i, float(pick(-1, 1)));
        for (int64_t i = 0; i < a.weights.elements(); ++i) put(a.weights, i, float(pick(-2, 2)));
        a.selected = poisoned(DType::i32, {tokens, std::min<int64_t>(top_k, 692) + 5});
        std::memset(a.selected.data, 0x77, a.selected.bytes());
        d.q = up(a.q), d.weights = up(a.weights), d.selected = up(a.selected);
        run_host(index_select_op(), {heads, dim, dtype}, a);
        run_device(index_select_op(), {heads, dim, dtype}, d);
        EXPECT_TRUE(same_bits(down(d.selected), a.selected)) << heads << " heads of " << dim << ", top " << top_k;
      }
}

TEST_F(CudaSparseTest, SparseAttention) {
  struct Case {
    int64_t heads, kv_heads, k_dim, v_dim;
    DType cache, y;
  };
  for (const Case c : {Case{16, 1, 576, 512, DType::bf16, DType::f32}, Case{6, 2, 40, 24, DType::f32, DType::bf16},
                       Case{4, 4, 64, 64, DType::bf16, DType::f32}}) {
    const bool mla = c.kv_heads == 1;
    SparseAttentionArgs a{
        .kv_heads = c.kv_heads, .v_dim = c.v_dim, .v_offset = mla ? 0 : c.kv_heads * c.k_dim, .scale = 0.1f},
        d;
    d = a;
    a.rows = rows(mla ? c.k_dim : c.kv_heads * (c.k_dim + c.v_dim), c.cache, a.cache, d.rows, d.cache);
    a.q = random(DType::f32, {a.rows.num_tokens, c.heads, c.k_dim});
    a.y = poisoned(c.y, {a.rows.num_tokens, c.heads, c.v_dim});
    a.selected = poisoned(DType::i32, {a.rows.num_tokens, 300});
    for (int64_t r = 0, t = 0; r < 4; ++r)
      for (; t < a.rows.row_offsets.as<int32_t>()[r + 1]; ++t) {
        const int32_t position = a.rows.computed.as<int32_t>()[r] + int32_t(t) - a.rows.row_offsets.as<int32_t>()[r];
        int32_t* to = a.selected.row<int32_t>(t);
        for (int32_t p = 0; p <= position && to < a.selected.row<int32_t>(t) + 299; ++p)
          if (p == 0 || pick(0, 2) > 0) *to++ = p;
      }
    d.q = up(a.q), d.y = up(a.y), d.selected = up(a.selected);
    const SparseAttentionDesc desc{c.heads, c.kv_heads, c.k_dim, c.v_dim, 0, a.v_offset, c.cache, c.y};
    run_host(sparse_attention_op(), desc, a);
    run_device(sparse_attention_op(), desc, d);
    const TensorView y = down(d.y);
    EXPECT_LT(error(y, a.y), c.y == DType::f32 ? f32_error : bf16_output_error) << desc.describe();
    SparseAttentionArgs one = d;  // the last token by itself
    const int64_t last = a.rows.num_tokens - 1;
    one.q = d.q.slice(0, last, 1), one.selected = d.selected.slice(0, last, 1), one.y = up(a.y.slice(0, last, 1));
    one.cache.block_table = d.cache.block_table.slice(0, 3, 1);
    one.rows = {up(ints({0, 1})), up(ints({39})), 1, 1, 1, 40};
    run_device(sparse_attention_op(), desc, one);
    EXPECT_TRUE(same_bits(down(one.y), y.slice(0, last, 1))) << desc.describe();
  }
}

}  // namespace
}  // namespace medley::test
