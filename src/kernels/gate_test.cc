// The gates at every level against their definition in double.
#include "kernels/gate.h"

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

TEST(Gate, EveryLevelMultiplies) {
  Rng rng(1);
  Machine machine(2);
  for (int64_t tokens : {0, 1, 3})
    for (int64_t dim : {1, 7, 64, 130})
      for (Gate act : {Gate::identity, Gate::sigmoid, Gate::silu})
        for (DType dtype : {DType::f32, DType::bf16})
          for (const auto& kernel : runnable(gate_op(), {act, dtype})) {
            SCOPED_TRACE(fmt::format("{} {} [{}, {}]", kernel.name(), name_of(act), tokens, dim));
            Tensor x(DType::f32, {tokens, dim}, 1), gate(DType::f32, {tokens, dim}, 2), y(dtype, {tokens, dim}, 3);
            x.fill(rng);
            gate.fill(rng, 3);
            launch(gate_op(), *kernel, {x, gate, act, y}, machine.context);
            ASSERT_TRUE(y.complete());
            for (int64_t t = 0; t < tokens; ++t)
              for (int64_t i = 0; i < dim; ++i) {
                const double g = get(gate, {t, i}), sigmoid = 1 / (1 + std::exp(-g));
                const double factor = act == Gate::identity ? g : act == Gate::sigmoid ? sigmoid : g * sigmoid;
                const double want = get(x, {t, i}) * factor;
                ASSERT_NEAR(get(y, {t, i}), want, (8 * f32_unit + unit_of(dtype)) * std::abs(want) + 1e-38);
              }
          }
}

TEST(Gate, MayWriteOverItsInput) {
  Rng rng(2);
  Machine machine;
  for (const auto& kernel : runnable(gate_op(), {Gate::sigmoid, DType::f32})) {
    Tensor x(DType::f32, {3, 5}), gate(DType::f32, {3, 5}), y(DType::f32, {3, 5});
    x.fill(rng);
    gate.fill(rng);
    launch(gate_op(), *kernel, {x, gate, Gate::sigmoid, y}, machine.context);
    launch(gate_op(), *kernel, {x, gate, Gate::sigmoid, x}, machine.context);
    ASSERT_EQ(x.bytes(), y.bytes());
  }
}

TEST(ScaleColumns, EveryLevelScales) {
  Rng rng(3);
  Machine machine(2);
  for (int64_t tokens : {0, 1, 3})
    for (int64_t dim : {1, 7, 130})
      for (const auto& kernel : runnable(scale_columns_op(), {dim})) {
        Tensor y(DType::f32, {tokens, dim}, 2), scale(DType::f32, {dim});
        y.fill(rng);
        scale.fill(rng);
        std::vector<float> before;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < dim; ++i) before.push_back(float(get(y, {t, i})));
        launch(scale_columns_op(), *kernel, {scale.as<float>(), y}, machine.context);
        ASSERT_TRUE(y.complete());
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < dim; ++i)
            ASSERT_EQ(get(y, {t, i}), double(before[size_t(t * dim + i)] * scale.as<float>()[i]));
      }
}

}  // namespace
}  // namespace medley
