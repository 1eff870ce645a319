// linear on blocks through Highway, for any CPU: codes become floats, x is float32.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/block_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/block_linear.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {
using block::Direct;
using block::Format;
using block::Kernels;
using block::Tile;
using block::Unpack;

using DU = hn::RebindToUnsigned<D>;
using DI = hn::RebindToSigned<D>;
using U = hn::Vec<DU>;

// q of codes below 16 that are not evenly spaced: a table of bytes in a register.
HWY_INLINE V uneven(const Format& f, U code) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(D(), f.levels[hn::GetLane(code)]);
#else
  const hn::Repartition<uint8_t, D> d8;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(f.byte_levels));
  const U index = hn::Or(hn::ShiftLeft<24>(code), hn::Set(DU(), 0x808080u));  // the lower bytes look up nothing
  const auto found = hn::TableLookupBytesOr0(table, hn::BitCast(d8, index));
  return hn::ConvertTo(D(), hn::ShiftRight<24>(hn::BitCast(DI(), found)));
#endif
}

template <int bits, bool even>
HWY_INLINE V level(const Format& f, U code) {
  if constexpr (lanes == 16 && bits <= 4) {  // a table of floats in a register
    const D d;
    const hn::RebindToSigned<D> di;
    return hn::TableLookupLanes(hn::LoadU(d, f.levels), hn::IndicesFromVec(d, hn::BitCast(di, code)));
  }
  if constexpr (!even) return uneven(f, code);
  const auto whole = hn::BitCast(DI(), code);
  return hn::ConvertTo(D(), hn::Add(whole, hn::Set(DI(), int32_t(f.levels[0]))));
}

struct Columns {
  V first, second;
};

// The integers of pair p of columns, `lanes` rows from row `row` of the panel on.
template <int low, int high, bool even>
HWY_INLINE Columns pair_of(const Format& f, const uint8_t* codes, int p, int row) {
  const DU du;
  constexpr int each = 16 / low;
  const auto line = [&](const uint8_t* plane, int index) {
    return hn::LoadU(du, reinterpret_cast<const uint32_t*>(plane + index * 4 * 64) + row);
  };
  const U mask = hn::Set(du, (1u << low) - 1);
  const U words = hn::ShiftRightSame(line(codes, p / each), low * (p % each));
  U first = hn::And(words, mask), second = hn::And(hn::ShiftRight<16>(words), mask);
  if constexpr (high > 0) {
    constexpr int high_each = 16 / high;
    const U top_mask = hn::Set(du, (1u << high) - 1);
    const U tops = hn::ShiftRightSame(line(codes + f.high, p / high_each), high * (p % high_each));
    first = hn::Or(first, hn::ShiftLeft<low>(hn::And(tops, top_mask)));
    second = hn::Or(second, hn::ShiftLeft<low>(hn::And(hn::ShiftRight<16>(tops), top_mask)));
  }
  return {level<low + high, even>(f, first), level<low + high, even>(f, second)};
}

// The same of 8-bit codes.
HWY_INLINE Columns pair_of_bytes(const uint8_t* codes, int p, int row) {
  const hn::Rebind<uint16_t, D> du16;
  const uint8_t* bytes = codes + (p / 2 * 4 + row / 16) * 64 + p % 2 * 32 + row % 16 * 2;
  const auto both = hn::BitCast(DI(), hn::PromoteTo(DU(), hn::LoadU(du16, reinterpret_cast<const uint16_t*>(bytes))));
  return {hn::ConvertTo(D(), hn::ShiftRight<24>(hn::ShiftLeft<24>(both))),
          hn::ConvertTo(D(), hn::ShiftRight<24>(hn::ShiftLeft<16>(both)))};
}

template <int low, int high, bool even>
HWY_INLINE Columns columns_at(const Format& f, const uint8_t* codes, int p, int row) {
  if constexpr (low == 8) {
    return pair_of_bytes(codes, p, row);
  } else {
    return pair_of<low, high, even>(f, codes, p, row);
  }
}

HWY_INLINE V halves(const uint8_t* from) {
  const hn::Rebind<uint16_t, D> du16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(D(), hn::BitCast(df16, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(from))));
}
HWY_INLINE auto bytes_at(const uint8_t* from) {
  const hn::Rebind<uint8_t, D> du8;
  return hn::PromoteTo(DI(), hn::LoadU(du8, from));
}
HWY_INLINE auto signed_at(const uint8_t* from) {
  const hn::Rebind<int8_t, D> di8;
  return hn::PromoteTo(DI(), hn::LoadU(di8, reinterpret_cast<const int8_t*>(from)));
}

// 2^(byte - 128), as group_scale() of block_format.cc has it.
HWY_INLINE V powers(const uint8_t* from) {
  const DI di;
  const auto exponent = bytes_at(from);
  const auto normal = hn::ShiftLeft<23>(hn::Sub(exponent, hn::Set(di, 1)));
  const auto small = hn::IfThenElse(hn::Eq(exponent, hn::Set(di, 0)), hn::Set(di, 0x200000), hn::Set(di, 0x400000));
  return hn::BitCast(D(), hn::IfThenElse(hn::Lt(exponent, hn::Set(di, 2)), small, normal));
}

HWY_INLINE void unpack_scales(const Format& f, const uint8_t* column, int64_t index, float* d_out, float* m_out) {
  const int groups = block::unit / f.group;
  for (int g = 0; g < groups; ++g)
    for (int row = 0; row < int(block::width); row += lanes) {
      const uint8_t* scale_at = column + f.scale + (index * groups + g) * block::width + row;
      float* d = d_out + g * block::width + row;
      float* m = m_out + g * block::width + row;
      if (f.power) {
        store(powers(scale_at), d);
        continue;
      }
      V scale = halves(column + f.d + 2 * row);
      V minimum = f.minimum ? halves(column + f.m + 2 * row) : hn::Zero(D());
      if (f.integers && f.nibbles) {
        const auto both = bytes_at(scale_at);
        scale = hn::Mul(scale, hn::ConvertTo(D(), hn::And(both, hn::Set(DI(), 15))));
        minimum = hn::Mul(minimum, hn::ConvertTo(D(), hn::ShiftRight<4>(both)));
      } else if (f.integers) {
        scale = hn::Mul(scale, hn::ConvertTo(D(), signed_at(scale_at)));
        if (f.minimum) minimum = hn::Mul(minimum, hn::ConvertTo(D(), bytes_at(scale_at - f.scale + f.minimum_at)));
      }
      store(scale, d);
      if (f.minimum) store(minimum, m);
    }
}

HWY_INLINE void fetch(const uint8_t* codes, int64_t ahead, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(codes) + ahead + line);
}

template <int low, int high, bool even>
void unpack(const Unpack& u) {
  const auto* column = static_cast<const uint8_t*>(u.column);
  const uint8_t* codes = column + u.format->codes + u.index * u.format->unit_bytes;
  fetch(codes, u.ahead, u.format->unit_bytes);
  unpack_scales(*u.format, column, u.index, u.d, u.m);
  for (int p = 0; p < block::unit / 2; ++p)
    for (int row = 0; row < int(block::width); row += lanes) {
      const Columns both = columns_at<low, high, even>(*u.format, codes, p, row);
      float* to = static_cast<float*>(u.q) + p * 2 * block::width + row;
      store(both.first, to);
      store(both.second, to + block::width);
    }
}

// A tile's 64 outputs are done a few vectors at a time, as many as the registers hold beside the rows' broadcast.
template <int rows>
constexpr int vectors() {
  const int fit = many_registers ? 4 : rows == 1 ? 8 : rows <= 2 ? 4 : 2;
  return fit * lanes <= int(block::width) ? fit : int(block::width) / lanes;
}

// Of x in int8 (whose products with codes are integers below 2^24: exact in any order): the scale of a column.
HWY_INLINE const float* x_scale_at(const float* const* x_scales, int row, int64_t column) {
  return x_scales != nullptr ? x_scales[row] + column / block::unit : nullptr;
}
HWY_INLINE V scaled(V scale, const float* x_scale) {
  return x_scale != nullptr ? hn::Mul(scale, hn::Set(D(), *x_scale)) : scale;
}

template <int rows, int group, bool minimum>
void multiply(const Tile& t) {
  constexpr int count = vectors<rows>();
  const D d;
  for (int first = 0; first < int(block::width); first += count * lanes) {
    const float* q = static_cast<const float*>(t.q) + first;
    for (int64_t g = 0; g < t.groups; ++g) {
      V sums[rows][count];
      const float* x[rows];
      HWY_UNROLL(6)
      for (int r = 0; r < rows; ++r) {
        x[r] = static_cast<const float*>(t.x[r]) + g * group;
        HWY_UNROLL(8)
        for (int j = 0; j < count; ++j) sums[r][j] = hn::Zero(d);
      }
      for (int k = 0; k < group; ++k, q += block::width) {
        HWY_UNROLL(8)
        for (int j = 0; j < count; ++j) {
          const V w = hn::LoadU(d, q + j * lanes);
          HWY_UNROLL(6)
          for (int r = 0; r < rows; ++r) sums[r][j] = hn::MulAdd(hn::Set(d, x[r][k]), w, sums[r][j]);
        }
      }
      const int64_t at = g * block::width + first;
      HWY_UNROLL(6)
      for (int r = 0; r < rows; ++r) {
        const V x_sum = minimum ? hn::Set(d, t.x_sums[r][t.first_group + g]) : hn::Zero(d);
        const float* x_scale = x_scale_at(t.x_scales, r, (t.first_group + g) * group);
        HWY_UNROLL(8)
        for (int j = 0; j < count; ++j) {
          float* to = t.sums + r * block::width + first + j * lanes;
          V total = hn::MulAdd(scaled(load(t.d + at + j * lanes), x_scale), sums[r][j], hn::LoadU(d, to));
          if constexpr (minimum) total = hn::NegMulAdd(hn::LoadU(d, t.m + at + j * lanes), x_sum, total);
          hn::StoreU(total, d, to);
        }
      }
    }
  }
}

// One group of a unit, from its pair `begin` on, for outputs [first, first + count * lanes).
template <int rows, int count, int low, int high, bool even, int group>
HWY_INLINE void add_group(const Format& f, const uint8_t* codes, int begin, int first, const float* const* x,
                          V (&sums)[rows][count]) {
  const D d;
  for (int p = begin; p < begin + group / 2; ++p) {
    HWY_UNROLL(8)
    for (int j = 0; j < count; ++j) {
      const Columns both = columns_at<low, high, even>(f, codes, p, first + j * lanes);
      HWY_UNROLL(6)
      for (int r = 0; r < rows; ++r) sums[r][j] = hn::MulAdd(hn::Set(d, x[r][2 * p]), both.first, sums[r][j]);
      HWY_UNROLL(6)
      for (int r = 0; r < rows; ++r) sums[r][j] = hn::MulAdd(hn::Set(d, x[r][2 * p + 1]), both.second, sums[r][j]);
    }
  }
}

template <int rows, int low, int high, bool even, int group, bool minimum>
void direct(const Direct& t) {
  const Format& f = *t.format;
  const D d;
  constexpr int count = vectors<rows>(), groups = block::unit / group;
  HWY_ALIGN float scale[groups * block::width], minima[groups * block::width];
  const float* x[rows];
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const float*>(t.x[r]);
    for (int i = 0; i < int(block::width); i += lanes) store(hn::Zero(d), t.sums + r * block::width + i);
  }
  const auto* column = static_cast<const uint8_t*>(t.panel);
  int64_t index = 0;
  for (int64_t unit = 0; unit < t.units; ++unit) {
    const uint8_t* codes = column + f.codes + index * f.unit_bytes;
    fetch(codes, t.ahead, f.unit_bytes);
    unpack_scales(f, column, index, scale, minima);
    for (int g = 0; g < groups; ++g)
      for (int first = 0; first < int(block::width); first += count * lanes) {
        V sums[rows][count];
        HWY_UNROLL(6)
        for (int r = 0; r < rows; ++r) {
          HWY_UNROLL(8)
          for (int j = 0; j < count; ++j) sums[r][j] = hn::Zero(d);
        }
        add_group<rows, count, low, high, even, group>(f, codes, g * group / 2, first, x, sums);
        const int at = g * int(block::width) + first;
        HWY_UNROLL(6)
        for (int r = 0; r < rows; ++r) {
          const V x_sum = minimum ? hn::Set(d, t.x_sums[r][unit * groups + g]) : hn::Zero(d);
          const float* x_scale = x_scale_at(t.x_scales, r, unit * block::unit);
          HWY_UNROLL(8)
          for (int j = 0; j < count; ++j) {
            float* to = t.sums + r * block::width + first + j * lanes;
            V total = hn::MulAdd(scaled(load(scale + at + j * lanes), x_scale), sums[r][j], load(to));
            if constexpr (minimum) total = hn::NegMulAdd(load(minima + at + j * lanes), x_sum, total);
            store(total, to);
          }
        }
      }
    HWY_UNROLL(6)
    for (int r = 0; r < rows; ++r) x[r] += block::unit;
    if (++index == f.column_units) index = 0, column += f.column_bytes;
  }
}

template <int low, int high, bool even, int group, bool minimum>
constexpr Kernels kernels{unpack<low, high, even>,
                          {multiply<1, group, minimum>, multiply<2, group, minimum>, multiply<3, group, minimum>,
                           multiply<4, group, minimum>, multiply<5, group, minimum>, multiply<6, group, minimum>},
                          {direct<1, low, high, even, group, minimum>, direct<2, low, high, even, group, minimum>,
                           direct<3, low, high, even, group, minimum>, direct<4, low, high, even, group, minimum>,
                           direct<5, low, high, even, group, minimum>, direct<6, low, high, even, group, minimum>}};

const Kernels* kernels_of(const Format& f) {
  if (f.group == 16) {
    if (f.low_bits == 4) return &kernels<4, 2, true, 16, false>;
    return f.minimum ? &kernels<2, 0, true, 16, true> : &kernels<2, 1, true, 16, false>;
  }
  if (f.low_bits == 8) return &kernels<8, 0, true, 32, false>;
  if (f.high_bits == 1) return f.minimum ? &kernels<4, 1, true, 32, true> : &kernels<4, 1, true, 32, false>;
  if (!f.even) return &kernels<4, 0, false, 32, false>;
  return f.minimum ? &kernels<4, 0, true, 32, true> : &kernels<4, 0, true, 32, false>;
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {

HWY_EXPORT(kernels_of);
const block::Kernels* block_kernels(const block::Format& format);
const block::Kernels* block_kernels(const block::Format& format) {
  return HWY_DYNAMIC_DISPATCH(kernels_of)(format);
}

}  // namespace medley::simd
#endif
