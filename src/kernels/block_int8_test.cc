// Activations in int8: what is rounded and how far, the extremes, and that every kernel with FMA gives the bits of the
// reference. That values are right and that company changes no bit, linear_test.cc shows of these kernels too.
#include "kernels/block_int8.h"

#include <limits>

#include "kernels/linear.h"
#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

constexpr int columns = block_int8::columns;
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Quantised {
  float scale;
  int8_t q[columns];
  explicit Quantised(const float* x) : scale(block_int8::quantise(x, q)) {}
};

TEST(BlockInt8, RoundsToTheNearestStepOfTheLargest) {
  Rng rng(1);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 4000; ++round) {
    float x[columns];
    const float size = std::exp2(float(int(rng() % 200)) - 99);
    double largest = 0;
    for (float& value : x) {
      value = normal(rng) * size;
      largest = std::max(largest, std::abs(double(value)));
    }
    const Quantised got(x);
    if (largest < 0x1p-100) continue;
    ASSERT_EQ(got.scale, float(largest) / 127);
    for (int i = 0; i < columns; ++i) {
      const double steps = x[i] * 127 / largest;  // two roundings of float away from what was rounded
      ASSERT_LE(std::abs(got.q[i] - steps), 0.5 + 127 * 2.01 * f32_unit) << x[i] << " of " << largest;
      if (std::abs(x[i]) == largest) {
        ASSERT_EQ(got.q[i], x[i] < 0 ? -127 : 127);
      }
    }
  }
}

TEST(BlockInt8, TiesGoToTheEvenNeighbour) {
  float x[columns] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 126.5f, -126.5f, -127};
  const Quantised got(x);
  EXPECT_EQ(got.scale, 1);
  const int want[] = {127, 0, 2, 2, 0, -2, -2, 126, -126, -127, 0};
  for (int i = 0; i < int(std::size(want)); ++i) EXPECT_EQ(got.q[i], want[i]) << x[i];
}

TEST(BlockInt8, ExtremesNeitherOverflowNorHide) {
  const auto all = [](const Quantised& got, int want) {
    for (const int8_t q : got.q)
      if (q != want) return false;
    return true;
  };
  const auto with = [](float value, float rest) {
    float x[columns];
    std::fill_n(x, columns, rest);
    x[columns - 1] = value;
    return Quantised(x);
  };
  EXPECT_TRUE(all(with(0, 0), 0));
  EXPECT_EQ(with(0, -0.0f).scale, 0);
  for (float tiny : {std::numeric_limits<float>::denorm_min(), 0x1p-126f, 0x1.fffffep-101f}) {
    EXPECT_EQ(with(-tiny, tiny / 2).scale, 0);
    EXPECT_TRUE(all(with(-tiny, tiny / 2), 0));
  }
  EXPECT_EQ(with(0x1p-100f, 0).q[columns - 1], 127);
  EXPECT_EQ(with(-std::numeric_limits<float>::max(), 0).q[columns - 1], -127);
  EXPECT_EQ(with(0, std::numeric_limits<float>::max()).scale, std::numeric_limits<float>::max() / 127);
  for (float bad : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
    EXPECT_TRUE(std::isnan(with(bad, 1).scale));
    EXPECT_TRUE(all(with(bad, 1), 0));
  }
}

TEST(BlockInt8, Bf16IsQuantisedAsTheFloatsItIs) {
  Rng rng(2);
  Tensor x(DType::bf16, {1, columns});
  x.fill(rng);
  float wide[columns];
  for (int i = 0; i < columns; ++i) wide[i] = float(x.as<bf16>()[i]);
  int8_t q[columns];
  const Quantised want(wide);
  EXPECT_EQ(block_int8::quantise(x.as<bf16>(), q), want.scale);
  EXPECT_EQ(0, std::memcmp(q, want.q, columns));
}

// Products of the weight's parts with the integers, in double. Roundings there may be: two of a group's sums (or of
// products and sums, where there is no FMA: four), each of a partial sum, and of d * scale and scale * sum one each.
TEST(BlockInt8, KernelsStayWithinTheRoundingsOfTheirGroups) {
  Rng rng(3);
  Machine machine(2);
  for (DType type : block_types)
    for (int64_t n : {1, 63, 130})
      for (int64_t tokens : {1, 7, 13}) {
        const int64_t k = 3 * block_elements(type);
        const LinearDesc desc{k, n, tokens == 7 ? DType::bf16 : DType::f32, type, true};
        Tensor x(desc.x, {tokens, k}, 3);
        x.fill(rng, 3);
        const Rng seed = rng;
        std::vector<float> reference;
        std::vector<Expected> expected;  // from the first kernel's copy of the weight
        for (const auto& kernel : runnable(linear_op(), desc)) {
          SCOPED_TRACE(fmt::format("{} {} tokens {}", kernel.name(), desc.describe(), tokens));
          Rng same = seed;
          const Weight weight(same, type, kernel->layout, n, k);
          Tensor y(DType::f32, {tokens, n});
          launch(linear_op(), *kernel, {x, weight.view, nullptr, y}, machine.context);
          const BlockFormat& format = format_of(type);
          for (int64_t t = 0; reference.empty() && t < tokens; ++t)
            for (int64_t row = 0; row < n; ++row) {
              double sum = 0, absolute = 0;
              for (int64_t at = 0; at < k; at += columns) {
                float part[columns];
                for (int i = 0; i < columns; ++i) part[i] = float(get(x, {t, at + i}));
                const Quantised in(part);
                BlockParts parts;
                weight_block(weight.view, 0, row, at / format.elements, parts);
                for (int i = 0; i < columns; ++i) {
                  const int element = int(at % format.elements) + i, group = element / format.group;
                  const double value = double(in.scale) * in.q[i], m = group_minimum(format, parts, group);
                  const double dq = double(group_scale(format, parts, group)) * level_of(format, parts.codes[element]);
                  sum += (dq - m) * value;
                  absolute += (std::abs(dq) + std::abs(m)) * std::abs(value);
                }
              }
              expected.push_back({sum, (4.0 * double(k / format.group) + 4) * f32_unit * absolute + 1e-30});
            }
          ASSERT_TRUE(matches(y, expected));
          const std::vector<float> got(y.as<float>(), y.as<float>() + tokens * n);
          if (reference.empty()) reference = got;
          const bool fma = kernel.target == 0 || kernel.name().find("/AVX") != std::string::npos;
          if (fma) {
            ASSERT_EQ(got, reference);
          }
        }
      }
}

TEST(BlockInt8, AnInfiniteInputIsSeenInItsRowAlone) {
  Rng rng(4);
  Machine machine(1);
  const LinearDesc desc{64, 70, DType::f32, DType::q4_1, true};
  Tensor x(DType::f32, {8, 64});
  x.fill(rng);
  x.as<float>()[3 * 64 + 40] = infinity;
  for (const auto& kernel : runnable(linear_op(), desc)) {
    const Weight weight(rng, desc.weight, kernel->layout, desc.out, desc.in);
    Tensor y(DType::f32, {8, desc.out});
    launch(linear_op(), *kernel, {x, weight.view, nullptr, y}, machine.context);
    for (int64_t t = 0; t < 8; ++t)
      for (int64_t n = 0; n < desc.out; ++n) ASSERT_EQ(std::isnan(get(y, {t, n})), t == 3) << kernel.name();
  }
}

TEST(BlockInt8, WeightsThatAreNotBlocksAreRefused) {
  for (DType weight : {DType::f32, DType::bf16, DType::f16})
    EXPECT_TRUE(runnable(linear_op(), LinearDesc{32, 4, DType::f32, weight, true}).empty());
}

}  // namespace
}  // namespace medley
