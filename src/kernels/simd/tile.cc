// linear's tiles through Highway, for any CPU: float32 x, weights widened in registers.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/dtype.h"
#include "kernels/panel_linear.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {
using panel::Tile;

// A tile's 64 outputs are done a few vectors at a time, as many as the registers hold beside the rows' broadcast.
template <int rows>
constexpr int vectors() {
  const int fit = many_registers ? 4 : rows == 1 ? 8 : rows <= 2 ? 4 : 2;
  return fit * lanes <= int(panel::width) ? fit : int(panel::width) / lanes;
}

struct Pair {
  V even, odd;
};
HWY_INLINE Pair widen(bf16, const uint16_t* pairs) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const auto both = hn::LoadU(du, reinterpret_cast<const uint32_t*>(pairs));
  return {hn::BitCast(d, hn::ShiftLeft<16>(both)), hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u)))};
}
HWY_INLINE Pair widen(f16, const uint16_t* pairs) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto both = hn::LoadU(du, reinterpret_cast<const uint32_t*>(pairs));
  const auto low = hn::DemoteTo(du16, hn::BitCast(di, hn::And(both, hn::Set(du, 0xffffu))));
  const auto high = hn::DemoteTo(du16, hn::BitCast(di, hn::ShiftRight<16>(both)));
  return {hn::PromoteTo(d, hn::BitCast(df16, low)), hn::PromoteTo(d, hn::BitCast(df16, high))};
}

template <int rows, int count>
HWY_INLINE void add(const float* const* x, int64_t k, int j, V weights, V (&sums)[rows][count]) {
  const D d;
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) sums[r][j] = hn::MulAdd(hn::Set(d, x[r][k]), weights, sums[r][j]);
}

// The first of the passes over a panel's columns fetches for all of them.
HWY_INLINE void fetch(const Tile& t, const void* line, int first_column) {
  if (first_column != 0) return;
  for (int i = t.fetch_first; i < t.fetch_last; ++i)
    __builtin_prefetch(static_cast<const char*>(line) + t.ahead + i * 64);
}

// Outputs [first, first + count * lanes) of the panel.
template <int rows, int count, class Weight>
HWY_INLINE void columns(const Tile& t, int first) {
  const D d;
  V sums[rows][count];
  const float* x[rows];
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const float*>(t.x[r]);
    HWY_UNROLL(8)
    for (int j = 0; j < count; ++j)
      sums[r][j] = t.start ? hn::Zero(d) : hn::LoadU(d, t.sums + r * panel::width + first + j * lanes);
  }
  if constexpr (std::is_same_v<Weight, float>) {
    const float* line = static_cast<const float*>(t.panel) + t.begin * panel::width + first;
    for (int64_t k = t.begin; k < t.end; ++k, line += panel::width) {
      fetch(t, line, first);
      HWY_UNROLL(8)
      for (int j = 0; j < count; ++j) add<rows, count>(x, k, j, hn::LoadU(d, line + j * lanes), sums);
    }
  } else {
    const uint16_t* line = static_cast<const uint16_t*>(t.panel) + t.begin * panel::width + first * 2;
    int64_t k = t.begin;
    for (; k + 2 <= t.end; k += 2, line += 2 * panel::width) {
      fetch(t, line, first);
      HWY_UNROLL(8)
      for (int j = 0; j < count; ++j) {
        const Pair pair = widen(Weight{}, line + j * lanes * 2);
        add<rows, count>(x, k, j, pair.even, sums);
        add<rows, count>(x, k + 1, j, pair.odd, sums);
      }
    }
    if (k < t.end) {
      HWY_UNROLL(8)
      for (int j = 0; j < count; ++j) add<rows, count>(x, k, j, widen(Weight{}, line + j * lanes * 2).even, sums);
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (int j = 0; j < count; ++j) hn::StoreU(sums[r][j], d, t.sums + r * panel::width + first + j * lanes);
  }
}

template <int rows, class Weight>
void tile(const Tile& t) {
  constexpr int count = vectors<rows>();
  for (int first = 0; first < int(panel::width); first += count * lanes) columns<rows, count, Weight>(t, first);
}

template <class Weight>
constexpr panel::Tiles table = {
    {tile<1, Weight>, tile<2, Weight>, tile<3, Weight>, tile<4, Weight>, tile<5, Weight>, tile<6, Weight>}};

const panel::Tiles* tiles_of(DType weight) {
  switch (weight) {
    case DType::f32: return &table<float>;
    case DType::f16: return &table<f16>;
    default: return &table<bf16>;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {

HWY_EXPORT(tiles_of);
const panel::Tiles& tiles_for(DType weight);
const panel::Tiles& tiles_for(DType weight) {
  return *HWY_DYNAMIC_DISPATCH(tiles_of)(weight);
}

}  // namespace medley::simd
#endif
