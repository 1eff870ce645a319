#include "kernels/norm.h"

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

struct Case {
  int64_t tokens, dim, group;
  bool weight, per_group, delta;
  NormGate gate;
  float offset;
  DType y;
  bool in_place;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int64_t tokens : {0, 1, 5})
    for (auto [dim, group] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {7, 0}, {64, 0}, {130, 0}, {96, 24}, {1000, 0}})
      for (int variant = 0; variant < 9; ++variant) {
        Case c{tokens,         dim, group,      variant != 1, variant == 2, variant == 3 || variant == 7,
               NormGate::none, 0,   DType::f32, false};
        if (variant == 4) c.gate = NormGate::before;
        if (variant == 5) c.gate = NormGate::after;
        if (variant == 8) c.gate = NormGate::after_sigmoid;
        if (variant == 6) c.in_place = true;
        if (variant == 7 || variant == 4) c.y = DType::bf16;
        if (variant >= 3) c.offset = float(variant % 2);
        all.push_back(c);
      }
  return all;
}

TEST(RmsNorm, EveryLevelNormalises) {
  Rng rng(1);
  Machine machine(2);
  constexpr float eps = 1e-5f;
  for (const Case& c : cases())
    for (const auto& kernel : runnable(rms_norm_op(), {c.dim, c.y})) {
      const int64_t group = c.group > 0 ? c.group : c.dim;
      SCOPED_TRACE(fmt::format("{} tokens {} dim {} group {} delta {} gate {} y {}", kernel.name(), c.tokens, c.dim,
                               group, c.delta, int(c.gate), name_of(c.y)));
      Tensor x(DType::f32, {c.tokens, c.dim}, 3), before(DType::f32, {c.tokens, c.dim}),
          gate(DType::f32, {c.tokens, c.dim}, 5), delta(DType::f32, {c.tokens, c.dim}),
          weight(DType::f32, {c.per_group ? group : c.dim}), out(c.y, {c.tokens, c.dim}, 1);
      Rng copy = rng;
      x.fill(rng, 3);
      before.fill(copy, 3);
      gate.fill(rng);
      delta.fill(rng);
      weight.fill(rng);
      RmsNormArgs args;
      args.x = x;
      args.weight = c.weight ? weight.as<float>() : nullptr;
      args.weight_per_group = c.per_group;
      args.group = c.group;
      args.eps = eps;
      args.weight_offset = c.offset;
      if (c.delta) args.delta = delta;
      args.gate_order = c.gate;
      if (c.gate != NormGate::none) args.gate = gate;
      const Tensor& y = c.in_place ? x : out;
      args.y = y;
      launch(rms_norm_op(), *kernel, args, machine.context);
      ASSERT_TRUE(y.complete());
      for (int64_t t = 0; t < c.tokens; ++t) {
        const auto silu = [&](int64_t i) { return get(gate, {t, i}) / (1 + std::exp(-get(gate, {t, i}))); };
        const auto input = [&](int64_t i) {
          // The sum with delta is stored as float32: the next layer's residual.
          const double value = c.delta ? double(float(get(before, {t, i}) + get(delta, {t, i}))) : get(before, {t, i});
          if (c.delta) {
            EXPECT_EQ(get(x, {t, i}), value);
          }
          return c.gate == NormGate::before ? value * silu(i) : value;
        };
        for (int64_t g = 0; g < c.dim; g += group) {
          double squares = 0;
          for (int64_t i = g; i < g + group; ++i) squares += input(i) * input(i);
          const double inverse = 1 / std::sqrt(squares / double(group) + double(eps));
          for (int64_t i = g; i < g + group; ++i) {
            double want = input(i) * inverse;
            if (c.weight) want *= get(weight, {c.per_group ? i - g : i}) + double(c.offset);
            if (c.gate == NormGate::after) want *= silu(i);
            if (c.gate == NormGate::after_sigmoid) want /= 1 + std::exp(-get(gate, {t, i}));
            // The sum of squares has no cancellation: group roundings, halved by the root; then about ten more in the
            // gate, the division and the products. weight + offset may cancel: its rounding counts against 2 or so.
            const double relative = (double(group) / 2 + 16) * f32_unit + (c.y == DType::bf16 ? 1.01 * bf16_unit : 0);
            ASSERT_NEAR(get(y, {t, i}), want, relative * std::abs(want) + 4 * f32_unit * std::abs(input(i) * inverse))
                << t << " " << i;
          }
        }
      }
    }
}

TEST(RmsNorm, ARowsBitsDependOnNeitherItsCompanyNorTheThreads) {
  Rng rng(2);
  for (auto [dim, group] : std::vector<std::pair<int64_t, int64_t>>{{130, 0}, {96, 24}, {1024, 0}})
    for (const auto& kernel : runnable(rms_norm_op(), {dim, DType::f32})) {
      Tensor x(DType::f32, {17, dim}), whole(DType::f32, {17, dim}), row(DType::f32, {17, dim});
      x.fill(rng);
      RmsNormArgs args;
      args.group = group;
      args.eps = 1e-6f;
      for (int threads = 1; threads <= 4; ++threads) {
        Machine machine(threads);
        args.x = x;
        args.y = whole;
        launch(rms_norm_op(), *kernel, args, machine.context);
        for (int64_t t = 0; t < 17; ++t) {
          args.x = x.view().slice(0, t, 1);
          args.y = row.view().slice(0, t, 1);
          launch(rms_norm_op(), *kernel, args, machine.context);
        }
        ASSERT_EQ(whole.bytes().size(), row.bytes().size());
        for (int64_t t = 0; t < 17; ++t) ASSERT_EQ(whole.row_bytes(t), row.row_bytes(t)) << kernel.name() << " " << t;
      }
    }
}

TEST(LayerNorm, EveryLevelNormalises) {
  Rng rng(3);
  Machine machine(2);
  for (const int64_t dim : {1, 7, 64, 130})
    for (const int64_t tokens : {0, 1, 5})
      for (const bool in_place : {false, true})
        for (const auto& kernel : runnable(layer_norm_op(), {dim})) {
          SCOPED_TRACE(fmt::format("{} dim {}", kernel.name(), dim));
          Tensor x(DType::f32, {tokens, dim}, 3), before(DType::f32, {tokens, dim}), out(DType::f32, {tokens, dim}, 1),
              weight(DType::f32, {dim}), bias(DType::f32, {dim});
          Rng copy = rng;
          x.fill(rng, 2, 1);
          before.fill(copy, 2, 1);
          weight.fill(rng);
          bias.fill(rng);
          const Tensor& y = in_place ? x : out;
          launch(layer_norm_op(), *kernel, {x, weight.as<float>(), bias.as<float>(), 1e-6f, y}, machine.context);
          ASSERT_TRUE(y.complete());
          for (int64_t t = 0; t < tokens; ++t) {
            double mean = 0, variance = 0, size = 0;
            for (int64_t i = 0; i < dim; ++i) mean += get(before, {t, i}) / double(dim);
            for (int64_t i = 0; i < dim; ++i) {
              variance += std::pow(get(before, {t, i}) - mean, 2) / double(dim);
              size = std::max(size, std::abs(get(before, {t, i})));
            }
            const double inverse = 1 / std::sqrt(variance + double(1e-6f));
            for (int64_t i = 0; i < dim; ++i) {
              const double want = (get(before, {t, i}) - mean) * inverse * get(weight, {i}) + get(bias, {i});
              // The mean's sum rounds dim times, relative to the largest value; the rest as rms_norm.
              const double mean_error = double(dim + 2) * f32_unit * size * inverse * std::abs(get(weight, {i}));
              const double rest = double(dim + 8) * f32_unit * (std::abs(want) + std::abs(get(bias, {i})));
              ASSERT_NEAR(get(y, {t, i}), want, 2 * mean_error + rest);
            }
          }
        }
}

}  // namespace
}  // namespace medley
