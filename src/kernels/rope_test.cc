#include "kernels/rope.h"

#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

TEST(RopeAngles, AreCosinesThenSines) {
  Machine machine(2);
  for (const auto& kernel : runnable(rope_angles_op(), {5})) {
    const Tensor positions = int_tensor({0, 1, 17, 131071});
    const std::vector<float> inv_freq = {1.0f, 0.3f, 0.05f, 1e-3f, 1e-5f};
    Tensor table(DType::f32, {4, 10});
    launch(rope_angles_op(), *kernel, {positions, inv_freq.data(), 1.25f, table}, machine.context);
    ASSERT_TRUE(table.complete());
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t i = 0; i < 5; ++i) {
        // The angle is a float32, as in transformers: at position 131071 it is off by up to 2^-8, alike for q and k.
        const double angle = double(float(positions.as<int32_t>()[t]) * inv_freq[size_t(i)]);
        EXPECT_NEAR(get(table, {t, i}), 1.25 * std::cos(angle), 4 * f32_unit) << t << " " << i;
        EXPECT_NEAR(get(table, {t, 5 + i}), 1.25 * std::sin(angle), 4 * f32_unit) << t << " " << i;
      }
  }
}

TEST(Rope, EveryLevelRotatesPairsInPlace) {
  Rng rng(2);
  Machine machine(2);
  for (bool interleaved : {false, true})
    for (int64_t half : {1, 4, 5, 16, 32, 37})
      for (int64_t extra : {0, 3})
        for (int64_t tokens : {0, 1, 4})
          for (const auto& kernel : runnable(rope_op(), {half, interleaved})) {
            SCOPED_TRACE(fmt::format("{} half {} interleaved {} extra {}", kernel.name(), half, interleaved, extra));
            const int64_t dim = 2 * half + extra, heads = 3;
            Tensor wide(DType::f32, {tokens, heads, dim + 2}, 5), before(DType::f32, {tokens, heads, dim + 2}),
                table(DType::f32, {tokens, 2 * half});
            Rng copy = rng;
            wide.fill(rng);
            before.fill(copy);
            table.fill(rng);
            const int64_t skip = extra > 0 ? 1 : 0;  // the rotary part may stand inside a longer head (MLA)
            launch(rope_op(), *kernel, {wide.view().slice(2, skip, dim), table, interleaved}, machine.context);
            ASSERT_TRUE(wide.complete());
            for (int64_t t = 0; t < tokens; ++t)
              for (int64_t h = 0; h < heads; ++h) {
                std::vector<double> want;
                for (int64_t i = 0; i < dim + 2; ++i) want.push_back(get(before, {t, h, i}));
                std::vector<double> size(want.size(), 0.0);
                for (int64_t i = 0; i < half; ++i) {
                  const size_t a = size_t(skip + (interleaved ? 2 * i : i));
                  const size_t b = size_t(skip + (interleaved ? 2 * i + 1 : i + half));
                  const double u = want[a], v = want[b], c = get(table, {t, i}), s = get(table, {t, half + i});
                  want[a] = u * c - v * s;
                  want[b] = v * c + u * s;
                  size[a] = std::abs(u * c) + std::abs(v * s);
                  size[b] = std::abs(v * c) + std::abs(u * s);
                }
                for (int64_t i = 0; i < dim + 2; ++i)  // two products and a sum; what is outside stays as it was
                  ASSERT_NEAR(get(wide, {t, h, i}), want[size_t(i)], 2 * f32_unit * size[size_t(i)]) << i;
              }
          }
}

}  // namespace
}  // namespace medley
