#include "kernels/pointwise.h"

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

TEST(Embedding, GivesScaledRowsAndZerosOutsideTheShard) {
  Rng rng(1);
  Machine machine(2);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& kernel : runnable(embedding_op(), {13, dtype})) {
      SCOPED_TRACE(kernel.name());
      const Weight table(rng, dtype, WeightLayout::row_major, 10, 13);
      const Tensor ids = int_tensor({100, 109, 99, 110, 104, 0});
      Tensor y(DType::f32, {6, 13}, 2);
      launch(embedding_op(), *kernel, {ids, table.view, 100, 1.5f, y}, machine.context);
      ASSERT_TRUE(y.complete());
      for (int64_t t = 0; t < 6; ++t)
        for (int64_t i = 0; i < 13; ++i) {
          const int64_t row = ids.as<int32_t>()[t] - 100;
          const double want = row < 0 || row >= 10 ? 0 : table.at(0, row, i) * 1.5;
          EXPECT_NEAR(get(y, {t, i}), want, f32_unit * std::abs(want));
        }
      Tensor none(DType::f32, {0, 13});
      launch(embedding_op(), *kernel, {int_tensor({}), table.view, 100, 1.5f, none}, machine.context);
    }
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::relu2: return x > 0 ? x * x : 0;
    case Activation::clamped_swiglu: return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
  }
  return 0;
}

TEST(GatedActivation, EveryLevelComputesEveryActivation) {
  Rng rng(2);
  Machine machine(2);
  for (Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu, Activation::relu2})
    for (bool gated : {true, false})
      for (DType y_type : {DType::f32, DType::bf16})
        for (int64_t width : {1, 7, 16, 65, 200})
          for (const auto& kernel : runnable(gated_activation_op(), {width, activation, gated, y_type}))
            for (int64_t tokens : {0, 1, 4}) {
              SCOPED_TRACE(fmt::format("{} {} gated {} width {}", kernel.name(), name_of(activation), gated, width));
              Tensor x(DType::f32, {tokens, gated ? 2 * width : width}, 3), y(y_type, {tokens, width}, 1);
              x.fill(rng, 4);
              launch(gated_activation_op(), *kernel, {x, activation, gated, y}, machine.context);
              ASSERT_TRUE(y.complete());
              for (int64_t t = 0; t < tokens; ++t)
                for (int64_t i = 0; i < width; ++i) {
                  const double value = get(x, {t, i}), gate = gated ? get(x, {t, width + i}) : 1;
                  const double want = activate(activation, value) * gate;
                  // silu: exp, the sum, the quotient and the product, a few units each. The gelus subtract from one
                  // on the negative side, where their error is absolute: of x / 2, not of the result.
                  const bool gelu = activation == Activation::gelu || activation == Activation::gelu_tanh;
                  const double near = 10 * f32_unit * std::abs(gelu ? value * gate : want);
                  ASSERT_NEAR(get(y, {t, i}), want, near + 1.01 * unit_of(y_type) * std::abs(want)) << value;
                }
            }
}

TEST(GatedActivation, ClampedSwigluClampsAndShifts) {
  Rng rng(3);
  Machine machine(2);
  for (DType y_type : {DType::f32, DType::bf16})
    for (int64_t width : {1, 16, 65})
      for (const auto& kernel : runnable(gated_activation_op(), {width, Activation::clamped_swiglu, true, y_type})) {
        SCOPED_TRACE(kernel.name());
        Tensor x(DType::f32, {9, 2 * width}, 3), y(y_type, {9, width}, 1);
        x.fill(rng, 6);  // a good part lies beyond the limits
        launch(gated_activation_op(), *kernel, {x, Activation::clamped_swiglu, true, y}, machine.context);
        ASSERT_TRUE(y.complete());
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t i = 0; i < width; ++i) {
            const double gate = std::min(get(x, {t, i}), 7.0), up = std::clamp(get(x, {t, width + i}), -7.0, 7.0);
            const double glu = gate / (1 + std::exp(-1.702 * gate)), want = (up + 1) * glu;
            // The exponent is as large as 1.702 x 24 and its rounding is one of the result; up + 1 may cancel.
            const double near = (10 + 1.702 * std::abs(gate)) * f32_unit * (std::abs(up) + 1) * std::abs(glu);
            ASSERT_NEAR(get(y, {t, i}), want, near + 1.01 * unit_of(y_type) * std::abs(want)) << gate << " " << up;
          }
      }
  Tensor x(DType::f32, {1, 4}), y(DType::f32, {1, 4});
  const auto kernels = runnable(gated_activation_op(), {4, Activation::clamped_swiglu, true, DType::f32});
  EXPECT_THROW(
      launch(gated_activation_op(), *kernels.at(0), {x, Activation::clamped_swiglu, false, y}, machine.context), Error);
}

TEST(GatedActivation, SiluIsFiniteAtTheEnds) {
  Machine machine;
  for (const auto& kernel : runnable(gated_activation_op(), {20, Activation::silu, false, DType::f32})) {
    Tensor x(DType::f32, {1, 20}), y(DType::f32, {1, 20});
    for (int i = 0; i < 20; ++i) x.as<float>()[i] = (i < 10 ? -1.0f : 1.0f) * std::pow(10.0f, float(i % 10) - 4);
    launch(gated_activation_op(), *kernel, {x, Activation::silu, false, y}, machine.context);
    for (int i = 0; i < 20; ++i) {
      const double value = get(x, {0, i});
      // Where exp(-x) overflows the quotient is a signed zero.
      EXPECT_NEAR(get(y, {0, i}), activate(Activation::silu, value), 10 * f32_unit * std::abs(value)) << kernel.name();
    }
  }
}

TEST(ConvertRows, GathersAndConverts) {
  Rng rng(3);
  Machine machine(2);
  for (DType from : {DType::f32, DType::bf16})
    for (DType to : {DType::f32, DType::bf16})
      for (const auto& kernel : runnable(convert_rows_op(), {from, to}))
        for (int64_t dim : {1, 17, 64}) {
          SCOPED_TRACE(kernel.name());
          Tensor x(from, {5, dim}, 3), y(to, {5, dim}, 2), chosen(to, {3, dim});
          x.fill(rng);
          launch(convert_rows_op(), *kernel, {x, {}, y}, machine.context);
          const Tensor rows = int_tensor({4, 0, 4});
          launch(convert_rows_op(), *kernel, {x, rows, chosen}, machine.context);
          ASSERT_TRUE(y.complete());
          ASSERT_TRUE(chosen.complete());
          const auto want = [&](int64_t row, int64_t i) {
            const float value = float(get(x, {row, i}));
            return to == DType::bf16 ? double(float(bf16(value))) : double(value);
          };
          for (int64_t i = 0; i < dim; ++i) {
            for (int64_t t = 0; t < 5; ++t) EXPECT_EQ(get(y, {t, i}), want(t, i));
            for (int64_t t = 0; t < 3; ++t) EXPECT_EQ(get(chosen, {t, i}), want(rows.as<int32_t>()[t], i));
          }
        }
}

TEST(Add, AddsScaled) {
  Rng rng(4);
  Machine machine(2);
  for (const auto& kernel : runnable(add_op(), {}))
    for (int64_t dim : {1, 19, 64}) {
      Tensor x(DType::f32, {3, dim}, 1), y(DType::f32, {3, dim}, 2), before(DType::f32, {3, dim});
      x.fill(rng);
      Rng copy = rng;
      y.fill(rng);
      before.fill(copy);
      launch(add_op(), *kernel, {x, 0.7f, y}, machine.context);
      ASSERT_TRUE(y.complete());
      for (int64_t t = 0; t < 3; ++t)
        for (int64_t i = 0; i < dim; ++i) {
          const double a = get(before, {t, i}), b = double(0.7f) * get(x, {t, i});
          EXPECT_NEAR(get(y, {t, i}), a + b, 2 * f32_unit * (std::abs(a) + std::abs(b)));
        }
    }
}

TEST(Scale, ScalesAndCaps) {
  Rng rng(5);
  Machine machine(2);
  for (const float softcap : {0.0f, 2.5f})
    for (const auto& kernel : runnable(scale_op(), {softcap != 0}))
      for (int64_t tokens : {0, 1, 3})
        for (int64_t dim : {1, 19, 64}) {
          SCOPED_TRACE(fmt::format("{} softcap {} dim {}", kernel.name(), softcap, dim));
          Tensor x(DType::f32, {tokens, dim}, 2), before(DType::f32, {tokens, dim});
          Rng copy = rng;
          x.fill(rng, 4);
          before.fill(copy, 4);
          launch(scale_op(), *kernel, {x, 0.7f, softcap}, machine.context);
          ASSERT_TRUE(x.complete());
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t i = 0; i < dim; ++i) {
              const double scaled = double(0.7f) * get(before, {t, i});
              const double want = softcap == 0 ? scaled : softcap * std::tanh(scaled / softcap);
              // tanh is flat: an error of its argument does not grow. A few roundings, one of them tanh's own.
              EXPECT_NEAR(get(x, {t, i}), want, 4 * f32_unit * std::abs(scaled));
            }
        }
}

}  // namespace
}  // namespace medley
