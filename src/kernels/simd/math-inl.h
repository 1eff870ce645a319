// Vector exp, log1p and tanh in float32, compiled once per instruction set (Highway includes this file again and
// again). Errors are of at most 2 ulp over the whole range; exp and tanh keep NaN, infinities and denormals.
// Polynomials are minimax fits; the figure beside each is its own relative error.

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

// exp(x) = 2^n exp(r), r = x - n ln 2 in [-ln 2 / 2, ln 2 / 2], with ln 2 in two parts, the first with few bits.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  // Beyond these the result is 0 or infinity. x comes second: x86 returns the second operand when one is NaN.
  const V low = hn::Set(d, -105.0f), high = hn::Set(d, 89.0f);
#if HWY_TARGET == HWY_SCALAR
  x = hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x));
#else
  x = hn::Min(high, hn::Max(low, x));
#endif
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const V r = hn::MulAdd(n, hn::Set(d, -1.428606765330187e-6f), hn::MulAdd(n, hn::Set(d, -0.693145751953125f), x));
  V q = hn::Set(d, 1.395049195e-3f);  // (e^r - 1 - r) / r^2: 3e-9
  q = hn::MulAdd(q, r, hn::Set(d, 8.368889351e-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 4.166620579e-2f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.666651884e-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.5000000095f));
  const V p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  // 2^n in two factors, since n = 128 and n < -126 are no exponents of a float.
  const auto whole = hn::ConvertTo(di, n), half = hn::ShiftRight<1>(whole);
  const auto power = [&](auto e) HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127)))); };
  return hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(whole, half)));
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

template <class D, class V>
HWY_INLINE V silu(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp(d, hn::Neg(x))));
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
