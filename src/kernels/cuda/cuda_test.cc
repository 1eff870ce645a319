// Every CUDA implementation against the plain CPU one on random odd shapes: outputs are poisoned before, and what must
// not depend on the batch is compared bit for bit. (cuda_attention_test.cc has attention and the cache.)
#include "kernels/cuda/cuda_test.h"

#include "kernels/gate.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/rope.h"
#include "kernels/state_space.h"

namespace medley::test {
namespace {

TEST_F(CudaTest, Embedding) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TensorView table = random(dtype, {37, 67}), ids = ints({0, 5, 40, 36, 3, 2});
    EmbeddingArgs a{.ids = ids,
                    .table = {.data = static_cast<std::byte*>(table.data), .dtype = dtype, .n = 37, .k = 67},
                    .first_id = 2,
                    .scale = 1.5f,
                    .y = poisoned(DType::f32, {6, 67})};
    run_host(embedding_op(), {67, dtype}, a);
    EmbeddingArgs d = a;
    d.ids = up(ids), d.table.data = static_cast<std::byte*>(up(table).data);
    d.y = up(poisoned(DType::f32, {6, 67}));
    run_device(embedding_op(), {67, dtype}, d);
    EXPECT_TRUE(same_bits(down(d.y), a.y));
  }
}

TEST_F(CudaTest, GatedActivation) {
  for (Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu, Activation::relu2})
    for (bool gated : {true, false})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const int64_t tokens = pick(1, 9), width = pick(0, 1) == 1 ? pick(1, 700) : 4 * pick(1, 700);
        GatedActivationArgs a{.x = random(DType::f32, {tokens, width * (gated ? 2 : 1)}),
                              .activation = activation,
                              .gated = gated,
                              .y = poisoned(dtype, {tokens, width})};
        GatedActivationArgs d = a;
        d.x = up(a.x), d.y = up(a.y);
        const GatedActivationDesc desc{width, activation, gated, dtype};
        run_host(gated_activation_op(), desc, a);
        run_device(gated_activation_op(), desc, d);
        EXPECT_LT(error(down(d.y), a.y), dtype == DType::f32 ? f32_error : bf16_output_error) << desc.describe();
      }
}

TEST_F(CudaTest, ConvertRowsAndAdd) {
  for (DType from : {DType::f32, DType::bf16})
    for (DType to : {DType::f32, DType::bf16}) {
      ConvertRowsArgs a{
          .x = random(from, {9, 300}).slice(1, 3, 290), .rows = ints({8, 0, 3, 3}), .y = poisoned(to, {4, 290})};
      ConvertRowsArgs d = a;
      d.x = up(a.x), d.rows = up(a.rows), d.y = up(a.y);
      run_host(convert_rows_op(), {from, to}, a);
      run_device(convert_rows_op(), {from, to}, d);
      EXPECT_TRUE(same_bits(down(d.y), a.y));
    }
  AddArgs a{.x = random(DType::f32, {5, 333}), .scale = 0.7f, .y = random(DType::f32, {5, 333})};
  AddArgs d = a;
  d.x = up(a.x), d.y = up(a.y);
  run_host(add_op(), {}, a);
  run_device(add_op(), {}, d);
  EXPECT_LT(error(down(d.y), a.y), f32_error);
}

TEST_F(CudaTest, GatesAndScales) {
  for (Gate act : {Gate::identity, Gate::sigmoid, Gate::silu})
    for (DType dtype : {DType::f32, DType::bf16}) {
      GateArgs a{.x = random(DType::f32, {5, 310}).slice(1, 3, 301),
                 .gate = random(DType::f32, {5, 305}).slice(1, 2, 301),
                 .act = act,
                 .y = poisoned(dtype, {5, 301})};
      GateArgs d = a;
      d.x = up(a.x), d.gate = up(a.gate), d.y = up(a.y);
      run_host(gate_op(), {act, dtype}, a);
      run_device(gate_op(), {act, dtype}, d);
      EXPECT_LT(error(down(d.y), a.y), dtype == DType::f32 ? f32_error : bf16_output_error);
    }
  const TensorView x = random(DType::f32, {4, 517}), columns = random(DType::f32, {517});
  for (float softcap : {0.0f, 3.0f}) {
    const TensorView mine = down(up(x)), device = up(x);
    run_host(scale_op(), {softcap > 0}, {mine, 1.7f, softcap});
    run_device(scale_op(), {softcap > 0}, {device, 1.7f, softcap});
    EXPECT_LT(error(down(device), mine), f32_error);
  }
  const TensorView device = up(x);
  run_device(scale_columns_op(), {517}, {up(columns, columns.as<float>()), device});
  run_host(scale_columns_op(), {517}, {columns.as<float>(), x});
  EXPECT_TRUE(same_bits(down(device), x));
}

TEST_F(CudaTest, LayerNorm) {
  for (int64_t dim : {3, 128, 4099}) {
    const TensorView weight = random(DType::f32, {dim}), bias = random(DType::f32, {dim});
    LayerNormArgs a{.x = random(DType::f32, {7, dim}),
                    .weight = weight.as<float>(),
                    .bias = bias.as<float>(),
                    .eps = 1e-5f,
                    .y = poisoned(DType::f32, {7, dim})};
    LayerNormArgs d = a;
    d.x = up(a.x), d.weight = up(weight, a.weight), d.bias = up(bias, a.bias), d.y = d.x;  // in place
    LayerNormArgs alone = d;
    alone.x = up(a.x.slice(0, 6, 1)), alone.y = up(a.y.slice(0, 6, 1));
    run_host(layer_norm_op(), {dim}, a);
    run_device(layer_norm_op(), {dim}, d);
    run_device(layer_norm_op(), {dim}, alone);
    EXPECT_LT(error(down(d.y), a.y), f32_error) << dim;
    EXPECT_TRUE(same_bits(down(d.y.slice(0, 6, 1)), down(alone.y)));
  }
}

TEST_F(CudaTest, RmsNorm) {
  struct Case {
    int64_t groups, group;
  };
  for (const Case c : {Case{1, 7}, Case{1, 512}, Case{1, 4099}, Case{8, 128}, Case{3, 1030}})
    for (NormGate order : {NormGate::none, NormGate::before, NormGate::after})
      for (DType dtype : {DType::f32, DType::bf16}) {
        const int64_t tokens = pick(2, 12), dim = c.groups * c.group;
        const bool per_group = c.groups > 1 && pick(0, 1) == 1, with_delta = pick(0, 1) == 1;
        const TensorView weight = random(DType::f32, {per_group ? c.group : dim});
        RmsNormArgs a{.x = random(DType::f32, {tokens, dim}),
                      .weight = weight.as<float>(),
                      .weight_per_group = per_group,
                      .group = c.group,
                      .eps = 1e-5f,
                      .weight_offset = 0.5f,
                      .gate_order = order,
                      .gate = random(DType::f32, {tokens, dim}),
                      .y = poisoned(dtype, {tokens, dim})};
        if (with_delta) a.delta = random(DType::f32, {tokens, dim});
        RmsNormArgs d = a, alone = a;
        d.x = up(a.x), d.weight = up(weight, a.weight), d.gate = up(a.gate), d.y = up(a.y), d.delta = up(a.delta);
        alone = d;  // the last token by itself
        alone.x = up(a.x.slice(0, tokens - 1, 1)), alone.gate = d.gate.slice(0, tokens - 1, 1);
        if (with_delta) alone.delta = d.delta.slice(0, tokens - 1, 1);
        alone.y = up(a.y.slice(0, tokens - 1, 1));
        run_host(rms_norm_op(), {dim, dtype}, a);
        run_device(rms_norm_op(), {dim, dtype}, d);
        run_device(rms_norm_op(), {dim, dtype}, alone);
        EXPECT_LT(error(down(d.y), a.y), dtype == DType::f32 ? f32_error : bf16_output_error) << dim;
        EXPECT_LT(error(down(d.x), a.x), f32_error);
        EXPECT_TRUE(same_bits(down(d.y.slice(0, tokens - 1, 1)), down(alone.y)));
      }
}

TEST_F(CudaTest, Rope) {
  for (bool interleaved : {false, true}) {
    const int64_t half = 16, tokens = 5;
    const TensorView positions = ints({0, 1, 77, 4095, 131071}), inv_freq = make(DType::f32, {half});
    for (int64_t i = 0; i < half; ++i) inv_freq.as<float>()[i] = std::pow(10000.0f, -float(i) / float(half));
    RopeAnglesArgs a{.positions = positions,
                     .inv_freq = inv_freq.as<float>(),
                     .factor = 1.2f,
                     .table = poisoned(DType::f32, {tokens, 2 * half})};
    RopeAnglesArgs d = a;
    d.positions = up(positions), d.inv_freq = up(inv_freq, a.inv_freq), d.table = up(a.table);
    run_host(rope_angles_op(), {half}, a);
    run_device(rope_angles_op(), {half}, d);
    EXPECT_LT(error(down(d.table), a.table), f32_error);

    const TensorView x = random(DType::f32, {tokens, 3, 48});
    RopeArgs r{.x = x.slice(1, 1, 2), .table = a.table, .interleaved = interleaved};
    const TensorView whole = up(x);
    RopeArgs rd{.x = whole.slice(1, 1, 2), .table = up(a.table), .interleaved = interleaved};
    run_host(rope_op(), {half, interleaved}, r);
    run_device(rope_op(), {half, interleaved}, rd);
    EXPECT_LT(error(down(whole), x), f32_error);
  }
}

// --------------------------------------------------------------------------------------------------------- products

TEST_F(CudaTest, Linear) {
  struct Case {
    int64_t tokens, n, k;
    DType x, weight, y;
  };
  const Case cases[] = {
      {1, 7, 5, DType::f32, DType::f32, DType::f32},         {9, 33, 130, DType::f32, DType::bf16, DType::f32},
      {3, 65, 256, DType::bf16, DType::f16, DType::bf16},    {17, 40, 72, DType::bf16, DType::f32, DType::f32},
      {1, 100, 1000, DType::bf16, DType::bf16, DType::f32},  {8, 24, 33, DType::bf16, DType::bf16, DType::f32},
      {13, 50, 520, DType::bf16, DType::bf16, DType::bf16},  {64, 129, 2048, DType::bf16, DType::bf16, DType::f32},
      {65, 130, 1032, DType::bf16, DType::bf16, DType::f32}, {300, 257, 776, DType::bf16, DType::bf16, DType::bf16},
      {70, 31, 35, DType::bf16, DType::bf16, DType::f32},    {2, 16, 8, DType::f32, DType::f16, DType::f32}};
  for (const Case& c : cases) {
    const TensorView w = random(c.weight, {c.n, c.k}), bias = random(DType::f32, {c.n});
    const bool accumulate = c.y == DType::f32 && pick(0, 1) == 1;
    LinearArgs a{.x = random(c.x, {c.tokens, c.k}),
                 .weight = {.data = static_cast<std::byte*>(w.data), .dtype = c.weight, .n = c.n, .k = c.k},
                 .bias = pick(0, 1) == 1 ? bias.as<float>() : nullptr,
                 .y = accumulate ? random(c.y, {c.tokens, c.n}) : poisoned(c.y, {c.tokens, c.n}),
                 .accumulate = accumulate};
    LinearArgs d = a;
    d.x = up(a.x), d.weight.data = static_cast<std::byte*>(up(w).data), d.y = up(a.y);
    if (a.bias != nullptr) d.bias = up(bias, a.bias);
    LinearArgs alone = d;  // the last token by itself
    alone.x = d.x.slice(0, c.tokens - 1, 1), alone.y = up(a.y.slice(0, c.tokens - 1, 1));
    const LinearDesc desc{c.k, c.n, c.x, c.weight};
    run_host(linear_op(), desc, a);
    run_device(linear_op(), desc, d);
    run_device(linear_op(), desc, alone);
    EXPECT_LT(error(down(d.y), a.y), c.y == DType::f32 ? f32_error : bf16_output_error)
        << c.tokens << " x " << desc.describe();
    EXPECT_TRUE(same_bits(down(d.y.slice(0, c.tokens - 1, 1)), down(alone.y))) << c.tokens << " x " << desc.describe();
  }
}

TEST_F(CudaTest, HeadwiseLinear) {
  struct Case {
    int64_t tokens;
    DType x, weight;
  };
  for (const Case c :
       {Case{1, DType::bf16, DType::bf16}, Case{70, DType::bf16, DType::bf16}, Case{5, DType::f32, DType::bf16}}) {
    constexpr int64_t heads = 3, n = 40, k = 64;
    const TensorView w = random(c.weight, {heads, n, k}), x = random(c.x, {c.tokens, heads, k + 8});
    HeadwiseLinearArgs a{.x = x,
                         .weight = {.data = static_cast<std::byte*>(w.data),
                                    .dtype = c.weight,
                                    .n = n,
                                    .k = k,
                                    .slots = heads,
                                    .slot_bytes = n * k * int64_t(size_of(c.weight))},
                         .y = poisoned(DType::f32, {c.tokens, heads, n})};
    a.x.shape[2] = k;
    HeadwiseLinearArgs d = a;
    d.x.data = up(x).data, d.x.device = Device::cuda, d.y = up(a.y);
    d.weight.data = static_cast<std::byte*>(up(w).data);
    HeadwiseLinearDesc desc;
    desc.in = k, desc.out = n, desc.x = c.x, desc.weight = c.weight, desc.heads = heads;
    run_host(headwise_linear_op(), desc, a);
    run_device(headwise_linear_op(), desc, d);
    EXPECT_LT(error(down(d.y), a.y), f32_error) << c.tokens;
  }
}

// Route, align, grouped product and weighted sum as a layer calls them; every stage against the reference's.
TEST_F(CudaTest, RoutingRules) {
  const RoutingRule rules[] = {
      {.score = RouterScore::softmax, .experts = 8, .top_k = 2, .renormalize = true},
      {.score = RouterScore::softmax, .experts = 60, .top_k = 4},
      {.score = RouterScore::softmax,
       .group_score = GroupScore::maximum,
       .experts = 160,
       .top_k = 6,
       .groups = 8,
       .top_groups = 3,
       .scaling = 16},
      {.score = RouterScore::sigmoid,
       .group_score = GroupScore::top2_sum,
       .experts = 256,
       .top_k = 8,
       .groups = 8,
       .top_groups = 4,
       .renormalize = true,
       .scaling = 2.5f},
      {.score = RouterScore::sigmoid, .experts = 32, .top_k = 4, .renormalize = true, .sum_epsilon = 0.25f},
      {.score = RouterScore::softmax_of_chosen, .experts = 32, .top_k = 4},
      // Lanes with 13, 32, 3 and 2 experts, the last two because a group has so many or half as many.
      {.score = RouterScore::sigmoid, .experts = 389, .top_k = 8, .renormalize = true},
      {.score = RouterScore::softmax, .experts = 1000, .top_k = 32, .renormalize = true},
      {.score = RouterScore::sigmoid,
       .group_score = GroupScore::top2_sum,
       .experts = 12,
       .top_k = 3,
       .groups = 4,
       .top_groups = 2},
      {.score = RouterScore::softmax,
       .group_score = GroupScore::maximum,
       .experts = 36,
       .top_k = 9,
       .groups = 9,
       .top_groups = 4},
      {.score = RouterScore::sigmoid, .experts = 1, .top_k = 1}};
  for (const RoutingRule& rule : rules) {
    const int64_t tokens = 133;
    const TensorView bias = random(DType::f32, {rule.experts}, 0.1f);
    RouteArgs a{.logits = random(DType::f32, {tokens, rule.experts}),
                .correction_bias = rule.score == RouterScore::sigmoid ? bias.as<float>() : nullptr,
                .rule = rule,
                .topk_ids = poisoned(DType::i32, {tokens, rule.top_k}),
                .topk_weights = poisoned(DType::f32, {tokens, rule.top_k})};
    // Ties, between lanes and in one, of both zeros too: the lower expert wins.
    for (int64_t i = 0; i < a.logits.elements() / 4; ++i)
      a.logits.as<float>()[i] = pick(0, 3) == 0 ? -0.0f : float(pick(0, 2));
    if (rule.score == RouterScore::sigmoid)
      for (int32_t e = 0; e < rule.experts; e += 3) bias.as<float>()[e] = 0;
    RouteArgs d = a;
    d.logits = up(a.logits), d.topk_ids = up(a.topk_ids), d.topk_weights = up(a.topk_weights);
    if (a.correction_bias != nullptr) d.correction_bias = up(bias, a.correction_bias);
    run_host(route_op(), {rule}, a);
    run_device(route_op(), {rule}, d);
    EXPECT_TRUE(same_bits(down(d.topk_ids), a.topk_ids)) << RouteDesc{rule}.describe();
    EXPECT_LT(error(down(d.topk_weights), a.topk_weights), f32_error) << RouteDesc{rule}.describe();
  }
}

// One block, clusters of each chunk size, and chunks that were counted first; slots without pairs, experts elsewhere.
TEST_F(CudaTest, AlignOfAnySize) {
  struct Case {
    int64_t pairs;
    int32_t experts, slots;
  };
  for (const Case& c :
       {Case{0, 5, 5}, Case{1, 256, 256}, Case{1023, 256, 256}, Case{1024, 3, 2}, Case{1025, 256, 256},
        Case{8192, 256, 200}, Case{8193, 256, 256}, Case{16385, 64, 64}, Case{32768, 256, 256}, Case{32769, 256, 256},
        Case{70001, 128, 128}, Case{20000, 600, 600}, Case{40000, 400, 399}, Case{9000, 1024, 1024}}) {
    const TensorView ids = make(DType::i32, {c.pairs, 1}), slot_of = make(DType::i32, {c.experts});
    for (int32_t e = 0; e < c.experts; ++e) slot_of.as<int32_t>()[e] = e < c.slots ? c.slots - 1 - e : -1;
    for (int64_t i = 0; i < c.pairs; ++i) {
      const int32_t e = pick(0, c.experts - 1);
      ids.as<int32_t>()[i] = e / 3 * 2;
    }
    const int64_t block_m = 1 << pick(0, 7), capacity = align_capacity(c.pairs, c.slots, block_m);
    AlignArgs a{.topk_ids = ids,
                .expert_to_slot = c.experts == c.slots ? nullptr : slot_of.as<int32_t>(),
                .experts = c.experts,
                .slots = c.slots,
                .block_m = block_m,
                .sorted_token_ids = poisoned(DType::i32, {capacity}),
                .expert_ids = poisoned(DType::i32, {capacity / block_m}),
                .num_tokens_post_padded = poisoned(DType::i32, {1})};
    AlignArgs d = a;
    d.topk_ids = up(ids);
    if (a.expert_to_slot != nullptr) d.expert_to_slot = up(slot_of, a.expert_to_slot);
    d.sorted_token_ids = up(a.sorted_token_ids), d.expert_ids = up(a.expert_ids);
    d.num_tokens_post_padded = up(a.num_tokens_post_padded);
    run_host(align_op(), {c.experts, c.slots}, a);
    run_device(align_op(), {c.experts, c.slots}, d);
    EXPECT_TRUE(same_bits(down(d.sorted_token_ids), a.sorted_token_ids)) << c.pairs << " pairs, block " << block_m;
    EXPECT_TRUE(same_bits(down(d.expert_ids), a.expert_ids)) << c.pairs;
    EXPECT_TRUE(same_bits(down(d.num_tokens_post_padded), a.num_tokens_post_padded)) << c.pairs;
  }
}

TEST_F(CudaTest, AlignAndGroupedLinear) {
  struct Case {
    int64_t tokens, block_m;
    DType x, weight;
  };
  const Case cases[] = {{1, 8, DType::bf16, DType::bf16},     {37, 16, DType::bf16, DType::bf16},
                        {50, 4, DType::f32, DType::bf16},     {200, 64, DType::bf16, DType::bf16},
                        {400, 128, DType::bf16, DType::bf16}, {1500, 16, DType::bf16, DType::bf16},
                        {9, 1, DType::f32, DType::f32}};
  for (const Case& c : cases) {
    constexpr int32_t experts = 24, slots = 20;
    constexpr int64_t top_k = 3, k = 264;
    const int64_t n = c.tokens == 200 ? 76 : 75;
    const int64_t pairs = c.tokens * top_k;
    const TensorView ids = make(DType::i32, {c.tokens, top_k}), slot_of = make(DType::i32, {experts});
    for (int32_t e = 0; e < experts; ++e) slot_of.as<int32_t>()[e] = e < slots ? slots - 1 - e : -1;
    for (int64_t t = 0; t < c.tokens; ++t)  // experts 5 to 8 get nothing
      for (int64_t i = 0; i < top_k; ++i) ids.row<int32_t>(t)[i] = i == 0 ? pick(0, 4) : pick(9, experts - 1);
    const int64_t capacity = align_capacity(pairs, slots, c.block_m);
    AlignArgs a{.topk_ids = ids,
                .expert_to_slot = slot_of.as<int32_t>(),
                .experts = experts,
                .slots = slots,
                .block_m = c.block_m,
                .sorted_token_ids = poisoned(DType::i32, {capacity}),
                .expert_ids = poisoned(DType::i32, {capacity / c.block_m}),
                .num_tokens_post_padded = poisoned(DType::i32, {1})};
    AlignArgs d = a;
    d.topk_ids = up(ids), d.expert_to_slot = up(slot_of, a.expert_to_slot);
    d.sorted_token_ids = up(a.sorted_token_ids), d.expert_ids = up(a.expert_ids);
    d.num_tokens_post_padded = up(a.num_tokens_post_padded);
    run_host(align_op(), {experts, slots}, a);
    run_device(align_op(), {experts, slots}, d);
    EXPECT_TRUE(same_bits(down(d.sorted_token_ids), a.sorted_token_ids)) << c.tokens;
    EXPECT_TRUE(same_bits(down(d.expert_ids), a.expert_ids)) << c.tokens;
    EXPECT_TRUE(same_bits(down(d.num_tokens_post_padded), a.num_tokens_post_padded)) << c.tokens;

    const TensorView w = random(c.weight, {slots, n, k}), bias = random(DType::f32, {slots, n});
    GroupedLinearArgs g{.x = random(c.x, {c.tokens, k}),
                        .x_divisor = top_k,
                        .weight = {.data = static_cast<std::byte*>(w.data),
                                   .dtype = c.weight,
                                   .n = n,
                                   .k = k,
                                   .slots = slots,
                                   .slot_bytes = n * k * int64_t(size_of(c.weight))},
                        .bias = bias.as<float>(),
                        .y = make(DType::f32, {pairs, n}),
                        .sorted_token_ids = a.sorted_token_ids.as<int32_t>(),
                        .expert_ids = a.expert_ids.as<int32_t>(),
                        .num_tokens_post_padded = a.num_tokens_post_padded.as<int32_t>(),
                        .num_pairs = pairs,
                        .block_m = c.block_m};
    std::memset(g.y.data, 0, g.y.bytes());  // pairs of absent experts are nobody's
    GroupedLinearArgs gd = g;
    gd.x = up(g.x), gd.weight.data = static_cast<std::byte*>(up(w).data), gd.bias = up(bias, g.bias), gd.y = up(g.y);
    gd.sorted_token_ids = d.sorted_token_ids.as<int32_t>(), gd.expert_ids = d.expert_ids.as<int32_t>();
    gd.num_tokens_post_padded = d.num_tokens_post_padded.as<int32_t>();
    GroupedLinearDesc desc;
    desc.in = k, desc.out = n, desc.x = c.x, desc.weight = c.weight, desc.slots = slots;
    run_host(grouped_linear_op(), desc, g);
    run_device(grouped_linear_op(), desc, gd);
    const TensorView grouped = down(gd.y);
    EXPECT_LT(error(grouped, g.y), f32_error) << c.tokens << " tokens, block " << c.block_m;

    // The expert's product of the last token, alone and ungrouped: same bits.
    const int32_t slot = slot_of.as<int32_t>()[ids.row<int32_t>(c.tokens - 1)[0]];
    LinearArgs one{.x = gd.x.slice(0, c.tokens - 1, 1),
                   .weight = gd.weight,
                   .bias = gd.bias + slot * n,
                   .y = up(poisoned(DType::f32, {1, n}))};
    one.weight.data += slot * g.weight.slot_bytes;
    run_device(linear_op(), {k, n, c.x, c.weight}, one);
    EXPECT_TRUE(same_bits(down(one.y), grouped.slice(0, (c.tokens - 1) * top_k, 1))) << c.block_m;

    WeightedSumArgs s{.x = g.y,
                      .topk_weights = random(DType::f32, {c.tokens, top_k}),
                      .y = random(DType::f32, {c.tokens, n}),
                      .accumulate = true};
    WeightedSumArgs sd = s;
    sd.x = up(s.x), sd.topk_weights = up(s.topk_weights), sd.y = up(s.y);
    run_host(weighted_sum_op(), {n}, s);
    run_device(weighted_sum_op(), {n}, sd);
    EXPECT_LT(error(down(sd.y), s.y), f32_error);
  }
}

// ------------------------------------------------------------------------------------------------------ state space

TEST_F(CudaStateTest, CausalConv) {
  for (int64_t width : {2, 4}) {
    const int64_t channels = 300;
    const TensorView weight = random(DType::f32, {channels, width}), bias = random(DType::f32, {channels});
    CausalConvArgs a{.x = random(DType::f32, {17, channels + 5}).slice(1, 2, channels),
                     .weight = weight.as<float>(),
                     .bias = bias.as<float>(),
                     .width = width,
                     .silu = width == 4,
                     .y = poisoned(DType::f32, {17, channels})};
    CausalConvArgs d = a;
    TensorView states, device_states;
    rows(conv_state_bytes(channels, width), a.rows, a.state, states, d.rows, d.state, device_states);
    d.x = up(a.x), d.y = up(a.y), d.weight = up(weight, a.weight), d.bias = up(bias, a.bias);
    run_host(causal_conv_op(), {channels, width}, a);
    run_device(causal_conv_op(), {channels, width}, d);
    EXPECT_LT(error(down(d.y), a.y), f32_error);
    EXPECT_TRUE(same_bits(down(device_states), states));
  }
}

TEST_F(CudaStateTest, SelectiveScan) {
  for (int64_t n : {4, 16, 33})
    for (DType dtype : {DType::f32, DType::bf16}) {
      const int64_t channels = 140;
      const TensorView decay = random(DType::f32, {channels, n}), skip = random(DType::f32, {channels}),
                       bias = random(DType::f32, {channels});
      for (int64_t i = 0; i < decay.elements(); ++i) put(decay, i, -std::exp(at(decay, i)));
      SelectiveScanArgs a{.x = random(DType::f32, {17, channels}),
                          .dt = random(DType::f32, {17, channels}),
                          .b = random(DType::f32, {17, n}),
                          .c = random(DType::f32, {17, n}),
                          .a = decay.as<float>(),
                          .d = skip.as<float>(),
                          .dt_bias = bias.as<float>(),
                          .y = poisoned(dtype, {17, channels})};
      if (n == 16) a.z = random(DType::f32, {17, channels});
      SelectiveScanArgs d = a;
      TensorView states, device_states;
      rows(channels * n * 4, a.rows, a.state, states, d.rows, d.state, device_states);
      d.x = up(a.x), d.dt = up(a.dt), d.b = up(a.b), d.c = up(a.c), d.z = up(a.z), d.y = up(a.y);
      d.a = up(decay, a.a), d.d = up(skip, a.d), d.dt_bias = up(bias, a.dt_bias);
      run_host(selective_scan_op(), {channels, n, dtype}, a);
      run_device(selective_scan_op(), {channels, n, dtype}, d);
      EXPECT_LT(error(down(d.y), a.y), dtype == DType::f32 ? f32_error : bf16_output_error) << n;
      EXPECT_LT(error(down(device_states), states), f32_error) << n;
    }
}

TEST_F(CudaStateTest, SsdScan) {
  struct Case {
    int64_t heads, dim, states, groups;
  };
  for (const Case c : {Case{4, 64, 128, 2}, Case{3, 10, 24, 1}, Case{2, 64, 256, 1}, Case{4, 80, 128, 4},
                       Case{2, 7, 60, 2}, Case{2, 16, 130, 1}}) {
    const TensorView decay = random(DType::f32, {c.heads}), skip = random(DType::f32, {c.heads}),
                     bias = random(DType::f32, {c.heads});
    for (int64_t i = 0; i < c.heads; ++i) put(decay, i, -std::exp(at(decay, i)));
    SsdScanArgs a{.x = random(DType::f32, {17, c.heads, c.dim}),
                  .dt = random(DType::f32, {17, c.heads}),
                  .b = random(DType::f32, {17, c.groups, c.states}),
                  .c = random(DType::f32, {17, c.groups, c.states}),
                  .a = decay.as<float>(),
                  .d = skip.as<float>(),
                  .dt_bias = bias.as<float>(),
                  .dt_min = 0.001f,
                  .dt_max = 2.0f,
                  .y = poisoned(DType::f32, {17, c.heads, c.dim})};
    SsdScanArgs d = a;
    TensorView states, device_states;
    rows(c.heads * c.dim * c.states * 4, a.rows, a.state, states, d.rows, d.state, device_states);
    d.x = up(a.x), d.dt = up(a.dt), d.b = up(a.b), d.c = up(a.c), d.y = up(a.y);
    d.a = up(decay, a.a), d.d = up(skip, a.d), d.dt_bias = up(bias, a.dt_bias);
    const SsdScanDesc desc{c.heads, c.dim, c.states, c.groups};
    run_host(ssd_scan_op(), desc, a);
    run_device(ssd_scan_op(), desc, d);
    EXPECT_LT(error(down(d.y), a.y), f32_error) << desc.describe();
    EXPECT_LT(error(down(device_states), states), f32_error) << desc.describe();
  }
}

}  // namespace
}  // namespace medley::test
