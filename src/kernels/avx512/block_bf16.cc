// linear on blocks with bf16 x: codes become bf16 integers by a table in a register (VPERMW), products and sums are
// VDPBF16PS on pairs of columns, scales are applied to float32 sums.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/avx512/block-inl.h"

namespace medley::avx512 {
namespace {

// Codes of a unit, as one bf16 integer a word.
template <int low, int high>
struct Codes {
  const uint8_t* lines;
  const uint8_t* high_lines;
  __m512i low_mask, levels, more_levels;

  Codes(const Format& f, const uint8_t* unit)
      : lines(unit),
        high_lines(unit + f.high),
        low_mask(_mm512_set1_epi16((1 << (low % 8)) - 1)),
        levels(_mm512_load_si512(f.bf16_levels)),
        more_levels(_mm512_load_si512(f.bf16_levels + 32)) {}

  // Pair p of columns, rows [16 j, 16 j + 16).
  template <int p>
  MEDLEY_INLINE __m512i pair(int j) const {
    if constexpr (low == 8) {
      const uint8_t* bytes = lines + (p / 2 * 4 + j) * 64 + p % 2 * 32;
      return (__m512i)_mm512_cvtne2ps_pbh(floats_of(bytes + 16), floats_of(bytes));
    } else {
      constexpr int each = 16 / low;
      __m512i code = shifted<low*(p % each)>(line_at(lines, p / each * 4 + j));
      if constexpr (high > 0) {
        constexpr int high_each = 16 / high;
        const __m512i top = shifted<high*(p % high_each) - low>(line_at(high_lines, p / high_each * 4 + j));
        code = _mm512_ternarylogic_epi32(low_mask, code, top, 0xca);  // low_mask ? code : top
      }
      // Bits above the code's pick a repetition of the table, which holds 32 entries a register.
      return low + high <= 5 ? _mm512_permutexvar_epi16(code, levels)
                             : _mm512_permutex2var_epi16(levels, code, more_levels);
    }
  }
};

template <int low, int high, int... p>
MEDLEY_INLINE void unpack_pairs(const Codes<low, high>& codes, uint16_t* q, std::integer_sequence<int, p...>) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) (_mm512_store_si512(q + (p * 4 + j) * 32, codes.template pair<p>(j)), ...);
}

using Pairs = std::make_integer_sequence<int, block::unit / 2>;

template <int low, int high, int group, Scale scale, bool minimum>
void unpack(const Unpack& u) {
  const auto* column = static_cast<const uint8_t*>(u.column);
  const uint8_t* codes = column + u.format->codes + u.index * u.format->unit_bytes;
  fetch(codes, u.ahead, u.format->unit_bytes);
  unpack_scales<group, scale, minimum>(*u.format, column, u.index, u.d, u.m);
  unpack_pairs(Codes<low, high>(*u.format, codes), static_cast<uint16_t*>(u.q), Pairs());
}

template <int rows, int group, bool minimum>
void multiply(const Tile& t) {
  const uint16_t* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) x[r] = static_cast<const uint16_t*>(t.x[r]);
  const auto* q = static_cast<const uint16_t*>(t.q);
  const float* d = t.d;
  const float* m = t.m;
  const float* const* x_sums = t.x_sums;
  float* const totals = t.sums;
  for (int64_t g = 0; g < t.groups; ++g) {
    __m512 sums[rows][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_setzero_ps();
    for (int p = 0; p < group / 2; ++p, q += 2 * block::width) {
      const __m512bh w[4] = {__m512bh(_mm512_load_si512(q)), __m512bh(_mm512_load_si512(q + 32)),
                             __m512bh(_mm512_load_si512(q + 64)), __m512bh(_mm512_load_si512(q + 96))};
#pragma GCC unroll 6
      for (int r = 0; r < rows; ++r) {
        uint32_t pair;
        std::memcpy(&pair, x[r] + 2 * p, 4);
        const __m512bh both = __m512bh(_mm512_set1_epi32(int(pair)));
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], both, w[j]);
      }
    }
    __m512 scale[4], minima[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      scale[j] = _mm512_load_ps(d + g * block::width + j * 16);
      if constexpr (minimum) minima[j] = _mm512_load_ps(m + g * block::width + j * 16);
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      x[r] += group;
      const __m512 x_sum = minimum ? _mm512_set1_ps(x_sums[r][t.first_group + g]) : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        float* to = totals + r * block::width + j * 16;
        __m512 total = _mm512_fmadd_ps(scale[j], sums[r][j], _mm512_load_ps(to));
        if constexpr (minimum) total = _mm512_fnmadd_ps(minima[j], x_sum, total);
        _mm512_store_ps(to, total);
      }
    }
  }
}

template <int rows>
using Sums = __m512[rows][4];

// Pair p of the group that begins at pair `first` of the unit.
template <int rows, int p, int first, int low, int high>
MEDLEY_INLINE void add_pair(const Codes<low, high>& codes, const uint16_t* const* x, Sums<rows>& sums) {
  __m512bh both[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    uint32_t pair;
    std::memcpy(&pair, x[r] + 2 * (first + p), 4);
    both[r] = __m512bh(_mm512_set1_epi32(int(pair)));
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512bh w = __m512bh(codes.template pair<first + p>(j));
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], both[r], w);
  }
}

template <int rows, int first, int low, int high, int... p>
MEDLEY_INLINE void add_pairs(const Codes<low, high>& codes, const uint16_t* const* x, Sums<rows>& sums,
                             std::integer_sequence<int, p...>) {
  (add_pair<rows, p, first>(codes, x, sums), ...);
}

// Adds the unit's group g to the totals.
template <int rows, int low, int high, int group, bool minimum, int g>
MEDLEY_INLINE void add_group(const Codes<low, high>& codes, const uint16_t* const* x, const float* d, const float* m,
                             const float* const* x_sums, int64_t at, float* totals) {
  Sums<rows> sums;
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_setzero_ps();
  add_pairs<rows, g * group / 2>(codes, x, sums, std::make_integer_sequence<int, group / 2>());
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    const __m512 x_sum = minimum ? _mm512_set1_ps(x_sums[r][at + g]) : _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      float* to = totals + r * block::width + j * 16;
      __m512 total = _mm512_fmadd_ps(_mm512_load_ps(d + g * block::width + j * 16), sums[r][j], _mm512_load_ps(to));
      if constexpr (minimum) total = _mm512_fnmadd_ps(_mm512_load_ps(m + g * block::width + j * 16), x_sum, total);
      _mm512_store_ps(to, total);
    }
  }
}

// Totals stay in memory: kept in registers beside a group's sums, they made the compiler spill both (4 rows of q4_k,
// 4096 x 4096: 1,058 us).
template <int rows, int low, int high, int group, Scale scale, bool minimum>
void direct(const Direct& t) {
  const Format& f = *t.format;
  const uint16_t* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const uint16_t*>(t.x[r]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(t.sums + r * block::width + j * 16, _mm512_setzero_ps());
  }
  constexpr int groups = block::unit / group;
  alignas(64) float d[groups * block::width], m[groups * block::width];
  const auto* column = static_cast<const uint8_t*>(t.panel);
  int64_t index = 0;
  for (int64_t unit = 0; unit < t.units; ++unit) {
    const uint8_t* unit_codes = column + f.codes + index * f.unit_bytes;
    fetch(unit_codes, t.ahead, f.unit_bytes);
    unpack_scales<group, scale, minimum>(f, column, index, d, m);
    const Codes<low, high> codes(f, unit_codes);
    add_group<rows, low, high, group, minimum, 0>(codes, x, d, m, t.x_sums, unit * groups, t.sums);
    if constexpr (groups == 2)
      add_group<rows, low, high, group, minimum, 1>(codes, x, d, m, t.x_sums, unit * groups, t.sums);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) x[r] += block::unit;
    if (++index == f.column_units) index = 0, column += f.column_bytes;
  }
}

template <int low, int high, int group, Scale scale, bool minimum>
constexpr Kernels kernels{unpack<low, high, group, scale, minimum>,
                          {multiply<1, group, minimum>, multiply<2, group, minimum>, multiply<3, group, minimum>,
                           multiply<4, group, minimum>, multiply<5, group, minimum>, multiply<6, group, minimum>},
                          {direct<1, low, high, group, scale, minimum>, direct<2, low, high, group, scale, minimum>,
                           direct<3, low, high, group, scale, minimum>, direct<4, low, high, group, scale, minimum>,
                           direct<5, low, high, group, scale, minimum>, direct<6, low, high, group, scale, minimum>}};

// The kernels for codes of low + high bits and a group, by how scales are stored.
template <int low, int high, int group>
const Kernels* by_scale(const Format& f) {
  if (f.power) return &kernels<low, high, group, Scale::power, false>;
  if (f.nibbles) return &kernels<low, high, group, Scale::nibbles, true>;
  if (f.integers)
    return f.minimum ? &kernels<low, high, group, Scale::integers, true>
                     : &kernels<low, high, group, Scale::integers, false>;
  return f.minimum ? &kernels<low, high, group, Scale::plain, true> : &kernels<low, high, group, Scale::plain, false>;
}

}  // namespace

const Kernels* block_bf16_kernels(const Format& f);
const Kernels* block_bf16_kernels(const Format& f) {
  if (f.low_bits == 8) return &kernels<8, 0, 32, Scale::plain, false>;
  if (f.low_bits == 2)
    return f.high_bits == 0 ? &kernels<2, 0, 16, Scale::nibbles, true> : &kernels<2, 1, 16, Scale::integers, false>;
  if (f.high_bits == 2) return &kernels<4, 2, 16, Scale::integers, false>;
  return f.high_bits == 1 ? by_scale<4, 1, 32>(f) : by_scale<4, 0, 32>(f);
}

}  // namespace medley::avx512
