// Products on Hopper's matrix units at real widths, against the plain CPU kernel; and every number of tokens, whatever
// tile it takes, gives the bits of any other.
#include "kernels/cuda/cuda_test.h"
#include "kernels/linear.h"
#include "kernels/moe.h"

namespace medley::test {
namespace {

class CudaLinearTest : public CudaTest {
 protected:
  WeightView weight_of(const TensorView& w, int64_t slots) {
    const int64_t n = w.size(0) / slots;
    return {.data = static_cast<std::byte*>(w.data),
            .n = n,
            .k = w.size(1),
            .slots = slots,
            .slot_bytes = n * w.size(1) * 2};
  }
};

TEST_F(CudaLinearTest, LinearOnMatrixUnits) {
  struct Case {
    int64_t n, k;
    DType y;
    bool accumulate;
  };
  // Cut into 8, 8, 4, 2 and 1 slices; k that ends inside a step, n that ends inside a tile.
  for (const Case c :
       {Case{576, 2048, DType::f32, false}, Case{100, 2056, DType::bf16, false}, Case{2048, 1408, DType::f32, true},
        Case{3100, 1000, DType::f32, false}, Case{6200, 520, DType::bf16, false}, Case{64, 8, DType::f32, false}}) {
    constexpr int64_t most = 1100;
    const TensorView w = random(DType::bf16, {c.n, c.k}), x = random(DType::bf16, {most, c.k});
    const TensorView bias = random(DType::f32, {c.n}), before = random(c.y, {most, c.n});
    LinearArgs d{.x = up(x), .weight = weight_of(w, 1), .accumulate = c.accumulate};
    d.weight.data = static_cast<std::byte*>(up(w).data), d.bias = up(bias, bias.as<float>());
    const LinearDesc desc{c.k, c.n, DType::bf16, DType::bf16};
    TensorView all;
    for (int64_t tokens : {most, int64_t(1), int64_t(3), int64_t(8), int64_t(9), int64_t(16), int64_t(31), int64_t(64),
                           int64_t(65), int64_t(128), int64_t(129), int64_t(300)}) {
      LinearArgs some = d;
      some.x = d.x.slice(0, 0, tokens), some.y = up(before.slice(0, 0, tokens));
      EXPECT_EQ(run_device(linear_op(), desc, some, Level::sm90), "sm90.linear");
      const TensorView y = down(some.y);
      if (tokens == most) {
        all = y;
      } else {
        EXPECT_TRUE(same_bits(y, all.slice(0, 0, tokens))) << tokens << " x " << desc.describe();
      }
    }
    // The first and the last tokens against the reference.
    for (int64_t first : {int64_t(0), most - 40}) {
      const LinearArgs a{.x = x.slice(0, first, 40),
                         .weight = weight_of(w, 1),
                         .bias = bias.as<float>(),
                         .y = before.slice(0, first, 40),
                         .accumulate = c.accumulate};
      run_host(linear_op(), desc, a);
      EXPECT_LT(error(all.slice(0, first, 40), a.y), c.y == DType::f32 ? f32_error : bf16_output_error)
          << desc.describe();
    }
  }
}

TEST_F(CudaLinearTest, HeadwiseOnMatrixUnits) {
  for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{512, 128}, {128, 512}, {200, 192}}) {
    constexpr int64_t heads = 16, most = 200;
    const TensorView w = random(DType::bf16, {heads * n, k}), x = random(DType::bf16, {most, heads, k + 64});
    HeadwiseLinearDesc desc;
    desc.in = k, desc.out = n, desc.x = DType::bf16, desc.heads = heads;
    HeadwiseLinearArgs a{.x = x, .weight = weight_of(w, heads), .y = poisoned(DType::f32, {most, heads, n})};
    a.x.shape[2] = k;
    HeadwiseLinearArgs d = a;
    d.x = up(a.x), d.y = up(a.y), d.weight.data = static_cast<std::byte*>(up(w).data);
    run_host(headwise_linear_op(), desc, a);
    EXPECT_EQ(run_device(headwise_linear_op(), desc, d, Level::sm90), "sm90.headwise_linear");
    EXPECT_LT(error(down(d.y), a.y), f32_error) << desc.describe();
    for (int64_t tokens : {1, 20, 70}) {
      HeadwiseLinearArgs some = d;
      some.x = d.x.slice(0, 0, tokens), some.y = up(poisoned(DType::f32, {tokens, heads, n}));
      run_device(headwise_linear_op(), desc, some, Level::sm90);
      EXPECT_TRUE(same_bits(down(some.y), down(d.y.slice(0, 0, tokens)))) << tokens << " x " << desc.describe();
    }
  }
}

// All pairs of a step in blocks of every size: the same bits, which are near the reference.
TEST_F(CudaLinearTest, GroupedOnMatrixUnits) {
  struct Case {
    int64_t tokens, n, k;
    int32_t experts;
  };
  for (const Case c : {Case{1, 2816, 512, 64}, Case{33, 208, 72, 16}, Case{300, 528, 264, 5}, Case{900, 130, 136, 4},
                       Case{260, 1024, 128, 4}}) {
    constexpr int64_t top_k = 3;
    const int64_t pairs = c.tokens * top_k;
    const TensorView ids = make(DType::i32, {c.tokens, top_k}), w = random(DType::bf16, {c.experts * c.n, c.k});
    const TensorView bias = random(DType::f32, {c.experts, c.n}), x = random(DType::bf16, {c.tokens, c.k});
    for (int64_t t = 0; t < c.tokens; ++t)  // the last expert gets nothing
      for (int64_t i = 0; i < top_k; ++i) ids.row<int32_t>(t)[i] = int32_t((t + i * (1 + t % 2)) % (c.experts - 1));
    GroupedLinearDesc desc;
    desc.in = c.k, desc.out = c.n, desc.x = DType::bf16, desc.slots = c.experts;
    TensorView first;
    for (int64_t block_m : {1, 4, 8, 16, 24, 32, 64, 100, 128, 256}) {
      const int64_t capacity = align_capacity(pairs, c.experts, block_m);
      AlignArgs align{.topk_ids = ids,
                      .experts = c.experts,
                      .slots = c.experts,
                      .block_m = block_m,
                      .sorted_token_ids = poisoned(DType::i32, {capacity}),
                      .expert_ids = poisoned(DType::i32, {capacity / block_m}),
                      .num_tokens_post_padded = poisoned(DType::i32, {1})};
      run_host(align_op(), {c.experts, c.experts}, align);
      GroupedLinearArgs a{.x = x,
                          .x_divisor = top_k,
                          .weight = weight_of(w, c.experts),
                          .bias = bias.as<float>(),
                          .y = poisoned(DType::f32, {pairs, c.n}),
                          .sorted_token_ids = align.sorted_token_ids.as<int32_t>(),
                          .expert_ids = align.expert_ids.as<int32_t>(),
                          .num_tokens_post_padded = align.num_tokens_post_padded.as<int32_t>(),
                          .num_pairs = pairs,
                          .block_m = block_m};
      GroupedLinearArgs d = a;
      d.x = up(x), d.weight.data = static_cast<std::byte*>(up(w).data), d.bias = up(bias, a.bias), d.y = up(a.y);
      d.sorted_token_ids = up(align.sorted_token_ids, a.sorted_token_ids);
      d.expert_ids = up(align.expert_ids, a.expert_ids);
      d.num_tokens_post_padded = up(align.num_tokens_post_padded, a.num_tokens_post_padded);
      EXPECT_EQ(run_device(grouped_linear_op(), desc, d, Level::sm90), "sm90.grouped_linear");
      const TensorView y = down(d.y);
      if (first.data == nullptr) {
        run_host(grouped_linear_op(), desc, a);
        EXPECT_LT(error(y, a.y), f32_error) << desc.describe();
        first = y;
      }
      EXPECT_TRUE(same_bits(y, first)) << desc.describe() << ", block " << block_m;
      if (c.n % 16 != 0) continue;
      // With the activation in it: what the activation makes of these sums, with and without a bias.
      for (const float* device_bias : {d.bias, static_cast<const float*>(nullptr)}) {
        GatedGroupedLinearDesc gated_desc{desc, Activation::silu, DType::bf16};
        d.bias = device_bias;
        GatedGroupedLinearArgs gated{d, Activation::silu};
        gated.y = up(poisoned(DType::bf16, {pairs, c.n / 2}));
        EXPECT_EQ(run_device(gated_grouped_linear_op(), gated_desc, gated, Level::sm90), "sm90.gated_grouped_linear");
        d.y = up(poisoned(DType::f32, {pairs, c.n}));
        run_device(grouped_linear_op(), desc, d, Level::sm90);
        const GatedActivationArgs apart{.x = d.y, .y = up(poisoned(DType::bf16, {pairs, c.n / 2}))};
        run_device(gated_activation_op(), {c.n / 2, Activation::silu, true, DType::bf16}, apart);
        EXPECT_TRUE(same_bits(down(gated.y), down(apart.y))) << gated_desc.describe() << ", block " << block_m;
        if (block_m != 8) continue;
        GatedGroupedLinearArgs host{a, Activation::silu};
        host.bias = device_bias != nullptr ? a.bias : nullptr;
        host.y = poisoned(DType::bf16, {pairs, c.n / 2});
        run_host(gated_grouped_linear_op(), gated_desc, host);
        EXPECT_LT(error(down(gated.y), host.y), bf16_output_error) << gated_desc.describe();
      }
    }
  }
}

}  // namespace
}  // namespace medley::test
