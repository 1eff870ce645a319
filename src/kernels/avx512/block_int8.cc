// linear on blocks with x in int8: a line of a panel, shifted and masked, is four codes of each of 16 rows, as bytes in
// the order of columns that byte_column() of block_linear.h gives, which x has too. VPDPBUSD multiplies and adds them
// as integers; codes are unsigned, and what that adds is in the sums' start.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/avx512/block-inl.h"

namespace medley::avx512 {
namespace {

using block::Int8Unit;

// Codes of a unit, four columns a dword.
template <int low, int high, bool even>
struct Codes {
  const uint8_t* lines;
  const uint8_t* high_lines;
  __m512i low_mask, high_mask, table;

  Codes(const Format& f, const uint8_t* unit)
      : lines(unit),
        high_lines(unit + f.high),
        low_mask(_mm512_set1_epi8(char((1 << (low % 8)) - 1))),
        high_mask(_mm512_set1_epi8(char(((1 << high) - 1) << (low % 8)))) {
    const __m512i flip = _mm512_set1_epi8(char(0x80));
    if constexpr (low == 8) {  // words r and 16 + r of a line are row r's
      const __m512i rows = _mm512_and_si512(lanes(), _mm512_set1_epi32(0xffff));
      table = _mm512_or_si512(rows, _mm512_slli_epi32(_mm512_add_epi32(rows, _mm512_set1_epi32(16)), 16));
    } else if constexpr (!even) {
      table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(f.byte_levels))),
                               flip);
    }
  }
  MEDLEY_INLINE static __m512i lanes() {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  }

  // Chunk c of four columns, rows [16 j, 16 j + 16).
  template <int c>
  MEDLEY_INLINE __m512i four(int j) const {
    if constexpr (low == 8) {
      const __m512i signs = _mm512_set1_epi8(char(0x80));
      return _mm512_xor_si512(_mm512_permutexvar_epi16(table, line_at(lines, c * 4 + j)), signs);
    } else {
      constexpr int each = 16 / low, chunks = 8 / low, line = c / chunks;
      constexpr int first = line * each + c % chunks, second = first + each / 2;  // pairs: bytes 0 and 2, 1 and 3
      __m512i code = _mm512_and_si512(shifted<low*(c % chunks)>(line_at(lines, line * 4 + j)), low_mask);
      if constexpr (high > 0) {
        constexpr int high_each = 16 / high;
        static_assert(first / high_each == second / high_each);
        const __m512i tops = line_at(high_lines, first / high_each * 4 + j);
        const __m512i even_bytes = shifted<high*(first % high_each) - low>(tops);
        const __m512i odd_bytes = shifted<high*(second % high_each) - low - 8>(tops);
        // bytes ? even_bytes : odd_bytes; then code | (top & high_mask)
        const __m512i top = _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xff), even_bytes, odd_bytes, 0xca);
        code = _mm512_ternarylogic_epi32(code, top, high_mask, 0xf8);
      }
      return even ? code : _mm512_shuffle_epi8(table, code);
    }
  }
};

constexpr int unit_chunks = block::unit / 4;

template <int low, int high, bool even, int... c>
MEDLEY_INLINE void unpack_chunks(const Codes<low, high, even>& codes, uint8_t* q, std::integer_sequence<int, c...>) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) (_mm512_store_si512(q + (c * 4 + j) * 64, codes.template four<c>(j)), ...);
}

template <int low, int high, bool even, int group, Scale scale, bool minimum>
void unpack(const Unpack& u) {
  const auto* column = static_cast<const uint8_t*>(u.column);
  const uint8_t* codes = column + u.format->codes + u.index * u.format->unit_bytes;
  fetch(codes, u.ahead, u.format->unit_bytes);
  unpack_scales<group, scale, minimum>(*u.format, column, u.index, u.d, u.m);
  unpack_chunks(Codes<low, high, even>(*u.format, codes), static_cast<uint8_t*>(u.q),
                std::make_integer_sequence<int, unit_chunks>());
}

template <int rows>
using Sums = __m512i[rows][4];

template <int rows>
MEDLEY_INLINE void start_group(const Int8Unit* const* x, int g, Sums<rows>& sums) {
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_set1_epi32(x[r]->start[g]);
}

MEDLEY_INLINE __m512i broadcast(const int8_t* four) {
  int32_t bytes;
  std::memcpy(&bytes, four, 4);
  return _mm512_set1_epi32(bytes);
}

// Adds a group's sums, of the unit at x, to the totals.
template <int rows, bool minimum>
MEDLEY_INLINE void finish_group(const Int8Unit* const* x, int g, const float* d, const float* m, Sums<rows>& sums,
                                float* totals) {
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    const __m512 x_scale = _mm512_set1_ps(x[r]->scale);
    const __m512 x_sum = minimum ? _mm512_set1_ps(x[r]->sums[g]) : _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      float* to = totals + r * block::width + j * 16;
      const __m512 scale = _mm512_mul_ps(_mm512_load_ps(d + j * 16), x_scale);
      __m512 total = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(sums[r][j]), _mm512_load_ps(to));
      if constexpr (minimum) total = _mm512_fnmadd_ps(_mm512_load_ps(m + j * 16), x_sum, total);
      _mm512_store_ps(to, total);
    }
  }
}

template <int rows, int group, bool minimum>
void multiply(const Tile& t) {
  constexpr int groups = block::unit / group;
  const Int8Unit* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) x[r] = static_cast<const Int8Unit*>(t.x[r]);
  const auto* q = static_cast<const uint8_t*>(t.q);
  const float* d = t.d;
  const float* m = t.m;
  for (int64_t unit = 0; unit < t.groups / groups; ++unit) {
#pragma GCC unroll 2
    for (int g = 0; g < groups; ++g) {
      Sums<rows> sums;
      start_group<rows>(x, g, sums);
#pragma GCC unroll 8
      for (int c = 0; c < group / 4; ++c) {
        const __m512i w[4] = {_mm512_load_si512(q), _mm512_load_si512(q + 64), _mm512_load_si512(q + 128),
                              _mm512_load_si512(q + 192)};
#pragma GCC unroll 6
        for (int r = 0; r < rows; ++r) {
          const __m512i four = broadcast(x[r]->q + g * group + 4 * c);
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], w[j], four);
        }
        q += 4 * block::width;
      }
      finish_group<rows, minimum>(x, g, d, m, sums, t.sums);
      d += block::width, m += block::width;
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) ++x[r];
  }
}

template <int rows, int c, int low, int high, bool even>
MEDLEY_INLINE void add_chunk(const Codes<low, high, even>& codes, const Int8Unit* const* x, Sums<rows>& sums) {
  __m512i four[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) four[r] = broadcast(x[r]->q + 4 * c);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i w = codes.template four<c>(j);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], w, four[r]);
  }
}

template <int rows, int first, int low, int high, bool even, int... c>
MEDLEY_INLINE void add_chunks(const Codes<low, high, even>& codes, const Int8Unit* const* x, Sums<rows>& sums,
                              std::integer_sequence<int, c...>) {
  (add_chunk<rows, first + c>(codes, x, sums), ...);
}

template <int rows, int group, bool minimum, int g, int low, int high, bool even>
MEDLEY_INLINE void add_group(const Codes<low, high, even>& codes, const Int8Unit* const* x, const float* d,
                             const float* m, float* totals) {
  Sums<rows> sums;
  start_group<rows>(x, g, sums);
  add_chunks<rows, g * group / 4>(codes, x, sums, std::make_integer_sequence<int, group / 4>());
  finish_group<rows, minimum>(x, g, d + g * block::width, m + g * block::width, sums, totals);
}

template <int rows, int low, int high, bool even, int group, Scale scale, bool minimum>
void direct(const Direct& t) {
  const Format& f = *t.format;
  const Int8Unit* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const Int8Unit*>(t.x[r]);
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
    const Codes<low, high, even> codes(f, unit_codes);
    add_group<rows, group, minimum, 0>(codes, x, d, m, t.sums);
    if constexpr (groups == 2) add_group<rows, group, minimum, 1>(codes, x, d, m, t.sums);
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) ++x[r];
    if (++index == f.column_units) index = 0, column += f.column_bytes;
  }
}

template <int low, int high, bool even, int group, Scale scale, bool minimum>
constexpr Kernels kernels{
    unpack<low, high, even, group, scale, minimum>,
    {multiply<1, group, minimum>, multiply<2, group, minimum>, multiply<3, group, minimum>, multiply<4, group, minimum>,
     multiply<5, group, minimum>, multiply<6, group, minimum>},
    {direct<1, low, high, even, group, scale, minimum>, direct<2, low, high, even, group, scale, minimum>,
     direct<3, low, high, even, group, scale, minimum>, direct<4, low, high, even, group, scale, minimum>,
     direct<5, low, high, even, group, scale, minimum>, direct<6, low, high, even, group, scale, minimum>}};

}  // namespace

const Kernels* block_int8_kernels(const Format& f);
const Kernels* block_int8_kernels(const Format& f) {
  if (f.low_bits == 8) return &kernels<8, 0, true, 32, Scale::plain, false>;
  if (f.low_bits == 2)
    return f.high_bits == 0 ? &kernels<2, 0, true, 16, Scale::nibbles, true>
                            : &kernels<2, 1, true, 16, Scale::integers, false>;
  if (f.high_bits == 2) return &kernels<4, 2, true, 16, Scale::integers, false>;
  if (f.power) return &kernels<4, 0, false, 32, Scale::power, false>;
  if (!f.even)
    return f.integers ? &kernels<4, 0, false, 32, Scale::integers, false>
                      : &kernels<4, 0, false, 32, Scale::plain, false>;
  if (f.high_bits == 1) {
    if (f.integers) return &kernels<4, 1, true, 32, Scale::integers, true>;
    return f.minimum ? &kernels<4, 1, true, 32, Scale::plain, true> : &kernels<4, 1, true, 32, Scale::plain, false>;
  }
  if (f.integers) return &kernels<4, 0, true, 32, Scale::integers, true>;
  return f.minimum ? &kernels<4, 0, true, 32, Scale::plain, true> : &kernels<4, 0, true, 32, Scale::plain, false>;
}

}  // namespace medley::avx512
