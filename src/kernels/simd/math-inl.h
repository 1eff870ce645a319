// Vector exp, softplus, silu, sigmoid and tanh in float32, compiled once per instruction set (Highway includes this
// file again and again). Errors are of 1 to 3 ulp, math_test.cc says where; NaN stays NaN. Polynomials are minimax
// fits; the figure beside each is its own relative error.

#if defined(MEDLEY_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MEDLEY_SIMD_MATH_INL_H
#undef MEDLEY_SIMD_MATH_INL_H
#else
#define MEDLEY_SIMD_MATH_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(x) for x <= 88; 0 where the result would be denormal (x < -87.34).
// exp(x) = 2^n exp(r), r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2], with ln 2 in two parts, the first with few bits. Adding
// 1.5 * 2^23 + 127 to n leaves n + 127, the exponent's field of 2^n, in the low bits of the sum.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToUnsigned<D> du;
  const V magic = hn::Set(d, 12583039.0f);
  const V sum = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic), n = hn::Sub(sum, magic);
  const V r = hn::MulAdd(n, hn::Set(d, -1.428606765330187e-6f), hn::MulAdd(n, hn::Set(d, -0.693145751953125f), x));
  V p = hn::Set(d, 1.395049195e-3f);  // e^r = 1 + r + r^2 q(r): 3e-9
  p = hn::MulAdd(p, r, hn::Set(d, 8.368889351e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166620579e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666651884e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5000000095f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, sum)));
  // A product, so that NaN stays NaN; and a comparison that NaN fails.
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), hn::Mul(p, power));
}

// log(1 + y) for y in [0, 1]: 2 atanh(s), s = y / (2 + y) in [0, 1/3].
template <class D, class V>
HWY_INLINE V log1p_unit(D d, V y) {
  const V s = hn::Div(y, hn::Add(y, hn::Set(d, 2.0f))), z = hn::Mul(s, s);
  V q = hn::Set(d, 0.1162689093f);  // (atanh(s) / s - 1) / z: 4e-10
  q = hn::MulAdd(q, z, hn::Set(d, 0.1085002077f));
  q = hn::MulAdd(q, z, hn::Set(d, 0.1429640536f));
  q = hn::MulAdd(q, z, hn::Set(d, 0.1999984815f));
  q = hn::MulAdd(q, z, hn::Set(d, 0.3333333368f));
  const V twice = hn::Add(s, s);
  return hn::MulAdd(hn::Mul(twice, z), q, twice);
}

// max(x, 0) + log(1 + exp(-|x|)): no overflow and no loss on either side.
template <class D, class V>
HWY_INLINE V softplus(D d, V x) {
  return hn::Add(hn::Max(hn::Zero(d), x), log1p_unit(d, exp(d, hn::Neg(hn::Abs(x)))));
}

// x / (1 + exp(-x)), on the negative side as x exp(x) / (1 + exp(x)).
template <class D, class V>
HWY_INLINE V silu(D d, V x) {
  const V e = exp(d, hn::Neg(hn::Abs(x)));
  const V numerator = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(x, e), x);
  return hn::Div(numerator, hn::Add(hn::Set(d, 1.0f), e));
}

// 1 / (1 + exp(-x)), on the negative side as exp(x) / (1 + exp(x)).
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f), e = exp(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}

// Small arguments by an odd polynomial, which keeps the relative error; others as (1 - t) / (1 + t), t = exp(-2 |x|).
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f), size = hn::Abs(x), z = hn::Mul(x, x);
  V q = hn::Set(d, -6.951029106e-3f);  // (tanh(x) / x - 1) / z on [0, 0.5]: 1e-9
  q = hn::MulAdd(q, z, hn::Set(d, 2.147473279e-2f));
  q = hn::MulAdd(q, z, hn::Set(d, -5.393410326e-2f));
  q = hn::MulAdd(q, z, hn::Set(d, 0.1333322896f));
  q = hn::MulAdd(q, z, hn::Set(d, -0.3333333282f));
  const V small = hn::MulAdd(hn::Mul(x, z), q, x);
  const V t = exp(d, hn::Mul(size, hn::Set(d, -2.0f)));
  const V large = hn::CopySign(hn::Div(hn::Sub(one, t), hn::Add(one, t)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.5f)), small, large);
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#endif  // include guard
