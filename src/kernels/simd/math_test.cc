// The vector functions against double over their whole range, at every instruction set of this CPU.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/math_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simd/math-inl.h"

#ifndef MEDLEY_MATH_TEST_FUNCTION
#define MEDLEY_MATH_TEST_FUNCTION
namespace medley::simd {
enum class Function { exp, softplus, silu, tanh };
}
#endif

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

// In place, 16 values at a time.
void apply(Function function, float* values, int64_t count) {
  const hn::CappedTag<float, 16> d;
  for (int64_t i = 0; i < count; i += int64_t(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, values + i);
    switch (function) {
      case Function::exp: hn::StoreU(exp(d, x), d, values + i); break;
      case Function::softplus: hn::StoreU(softplus(d, x), d, values + i); break;
      case Function::silu: hn::StoreU(silu(d, x), d, values + i); break;
      case Function::tanh: hn::StoreU(tanh(d, x), d, values + i); break;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

namespace medley::simd {
namespace {

HWY_EXPORT(apply);

double exact(Function function, double x) {
  switch (function) {
    case Function::exp: return std::exp(x);
    case Function::softplus: return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case Function::silu: return x / (1 + std::exp(-x));
    case Function::tanh: return std::tanh(x);
  }
  return 0;
}

// Errors in units of the last place of the float32 nearest to the exact value, denormals included.
double ulps(float got, double want) {
  const float nearest = float(want);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e9;
  const double ulp =
      std::max(double(std::nextafter(std::abs(nearest), INFINITY)) - double(std::abs(nearest)), 0x1p-149);
  return std::abs(double(got) - want) / ulp;
}

class VectorMath : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  // The worst error over 400,000 arguments in [low, high], even and around powers of two.
  double worst(Function function, float low, float high) {
    std::vector<float> x;
    for (int i = 0; i < 200000; ++i) x.push_back(low + (high - low) * float(i) / 200000.0f);
    for (int i = 0; i < 200000; ++i) {
      const float small = std::ldexp(1.0f + float(i % 1000) / 1000.0f, i / 1000 - 140);
      x.push_back(std::clamp(small, low, high));
      x.back() = i % 2 == 0 ? x.back() : std::clamp(-small, low, high);
    }
    x.resize(x.size() / 16 * 16);
    std::vector<float> y = x;
    HWY_DYNAMIC_DISPATCH(apply)(function, y.data(), int64_t(y.size()));
    double most = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(y[i], exact(function, double(x[i])));
      if (error > most) {
        most = error;
        at = x[i];
      }
    }
    return most;
  }
  float at = 0;
};

TEST_P(VectorMath, ExpIsWithinTwoUlps) {
  EXPECT_LE(worst(Function::exp, -87.33f, 88.0f), 1.5) << at;
  // Denormal results are zero: off by less than the smallest normal float.
  EXPECT_LE(worst(Function::exp, -1000.0f, -87.34f), 0x1p23) << at;
}
TEST_P(VectorMath, SoftplusIsWithinTwoUlps) {
  EXPECT_LE(worst(Function::softplus, -87.0f, 100.0f), 2.5) << at;
}
TEST_P(VectorMath, SiluIsWithinThreeUlps) {
  EXPECT_LE(worst(Function::silu, -87.0f, 100.0f), 3.0) << at;
}
TEST_P(VectorMath, TanhIsWithinTwoUlps) {
  EXPECT_LE(worst(Function::tanh, -30.0f, 30.0f), 2.5) << at;
}

TEST_P(VectorMath, EndsAndNaN) {
  const float inf = INFINITY, nan = std::numeric_limits<float>::quiet_NaN();
  const auto of = [](Function function, float x) {
    std::vector<float> values(16, x);
    HWY_DYNAMIC_DISPATCH(apply)(function, values.data(), 16);
    return values[7];
  };
  EXPECT_EQ(of(Function::exp, -inf), 0.0f);
  EXPECT_EQ(of(Function::exp, -88.0f), 0.0f);
  EXPECT_EQ(of(Function::silu, -1e30f), 0.0f);
  EXPECT_EQ(of(Function::silu, 1e30f), 1e30f);
  EXPECT_EQ(of(Function::exp, 0.0f), 1.0f);
  EXPECT_EQ(of(Function::tanh, inf), 1.0f);
  EXPECT_EQ(of(Function::tanh, -inf), -1.0f);
  EXPECT_EQ(of(Function::softplus, -inf), 0.0f);
  EXPECT_EQ(of(Function::softplus, inf), inf);
  for (Function function : {Function::exp, Function::softplus, Function::silu, Function::tanh})
    EXPECT_TRUE(std::isnan(of(function, nan))) << int(function);
}

INSTANTIATE_TEST_SUITE_P(Targets, VectorMath, testing::ValuesIn([] {
                           hwy::SetSupportedTargetsForTest(0);
                           return hwy::SupportedAndGeneratedTargets();
                         }()),
                         [](const auto& test) { return std::string(hwy::TargetName(test.param)); });

}  // namespace
}  // namespace medley::simd
#endif
