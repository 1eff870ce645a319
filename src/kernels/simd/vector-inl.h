// Vectors of float32, their loads and stores from float32 and bf16 memory, and sums of lanes; compiled once per
// instruction set (Highway includes this file again and again).

#if defined(MEDLEY_SIMD_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MEDLEY_SIMD_VECTOR_INL_H
#undef MEDLEY_SIMD_VECTOR_INL_H
#else
#define MEDLEY_SIMD_VECTOR_INL_H
#endif

#include <hwy/highway.h>

#include "base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int lanes = int(hn::MaxLanes(D()));
constexpr bool many_registers = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON;  // 32, else 16

constexpr int64_t round_up(int64_t count) {
  return (count + lanes - 1) / lanes * lanes;
}

HWY_INLINE V load(const float* from) {
  return hn::LoadU(D(), from);
}
HWY_INLINE V load(const bf16* from) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

HWY_INLINE void store(V value, float* to) {
  hn::StoreU(value, D(), to);
}
// Rounds to nearest even, as bf16::round.
HWY_INLINE void store(V value, bf16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const auto bits = hn::BitCast(du, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto even = hn::Add(hn::Set(du, 0x7fffu), hn::And(upper, hn::Set(du, 1u)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, even));
  const auto nan = hn::RebindMask(du, hn::IsNaN(value));
  const auto half = hn::IfThenElse(nan, hn::Or(upper, hn::Set(du, 0x40u)), rounded);
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di, half)), du16, reinterpret_cast<uint16_t*>(to));
}

// `count` < lanes elements, then zeros.
template <class T>
HWY_INLINE V load_tail(const T* from, int64_t count) {
  HWY_ALIGN T part[lanes] = {};
  for (int64_t i = 0; i < count; ++i) part[i] = from[i];
  return load(part);
}
template <class T>
HWY_INLINE void store_tail(V value, T* to, int64_t count) {
  HWY_ALIGN T part[lanes];
  store(value, part);
  for (int64_t i = 0; i < count; ++i) to[i] = part[i];
}

// Element i of `count`, whole vectors or the last part of one.
template <class T>
HWY_INLINE V load_at(const T* from, int64_t i, int64_t count) {
  return i + lanes <= count ? load(from + i) : load_tail(from + i, count - i);
}
template <class T>
HWY_INLINE void store_at(V value, T* to, int64_t i, int64_t count) {
  i + lanes <= count ? store(value, to + i) : store_tail(value, to + i, count - i);
}

HWY_INLINE float sum_of_lanes(V value) {
  return hn::GetLane(hn::SumOfLanes(D(), value));
}

// Sums of the lanes of four vectors, stored side by side.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(const V (&v)[4], float* to) {
  for (int j = 0; j < 4; ++j) to[j] = hn::GetLane(v[j]);
}
#else
template <class DV>
HWY_INLINE void store_halves(DV d, hn::Vec<DV> four, float* to) {
  if constexpr (hn::MaxLanes(DV()) > 4) {
    const hn::Half<DV> half;
    store_halves(half, hn::Add(hn::LowerHalf(half, four), hn::UpperHalf(half, four)), to);
  } else {
    hn::StoreU(four, d, to);
  }
}
HWY_INLINE void store_sums(const V (&v)[4], float* to) {
  const D d;
  const hn::Repartition<uint64_t, D> d64;
  const V left = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const V right = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto x = hn::BitCast(d64, left), y = hn::BitCast(d64, right);
  const V four =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, x, y)), hn::BitCast(d, hn::InterleaveUpper(d64, x, y)));
  store_halves(d, four, to);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#endif  // include guard
