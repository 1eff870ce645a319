// linear on blocks with bf16 x: codes become bf16 integers by a table in a register (VPERMW), products and sums are
// VDPBF16PS on pairs of columns, scales are applied to float32 sums.
#include <immintrin.h>

#include <cstring>
#include <utility>

#include "kernels/block_linear.h"

namespace medley::avx512 {
namespace {

using block::Format;
using block::Kernels;
using block::Tile;
using block::Unpack;

inline __m512i line_at(const uint8_t* lines, int index) {
  return _mm512_loadu_si512(lines + index * 64);
}
template <int by>  // right; negative: left
inline __m512i shifted(__m512i v) {
  if constexpr (by > 0) return _mm512_srli_epi16(v, by);
  if constexpr (by < 0) return _mm512_slli_epi16(v, -by);
  return v;
}

// The integers of pair `p` of columns, all 64 rows. `low_mask` has the low bits of every word set.
template <int low, int high, int p>
inline void unpack_pair(const uint8_t* codes, int64_t high_at, __m512i low_mask, const __m512i (&levels)[2],
                        uint16_t* q) {
  constexpr int each = 16 / low;
  uint16_t* to = q + p * 2 * block::width;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    __m512i code = shifted<low*(p % each)>(line_at(codes, p / each * 4 + j));
    if constexpr (high > 0) {
      constexpr int high_each = 16 / high;
      const __m512i top = shifted<high*(p % high_each) - low>(line_at(codes + high_at, p / high_each * 4 + j));
      code = _mm512_ternarylogic_epi32(low_mask, code, top, 0xca);  // low_mask ? code : top
    }
    // Bits above the code's pick a repetition of the table, which holds 32 entries in a register.
    const __m512i value = low + high <= 5 ? _mm512_permutexvar_epi16(code, levels[0])
                                          : _mm512_permutex2var_epi16(levels[0], code, levels[1]);
    _mm512_store_si512(to + j * 32, value);
  }
}

template <int low, int high, int... p>
inline void unpack_pairs(const uint8_t* codes, const Format& f, uint16_t* q, std::integer_sequence<int, p...>) {
  const __m512i low_mask = _mm512_set1_epi16((1 << low) - 1);
  const __m512i levels[2] = {_mm512_load_si512(f.bf16_levels), _mm512_load_si512(f.bf16_levels + 32)};
  (unpack_pair<low, high, p>(codes, f.high, low_mask, levels, q), ...);
}

inline __m512 floats_of(const uint8_t* bytes) {  // 16 int8
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
}

inline void unpack_bytes(const uint8_t* codes, uint16_t* q) {
  for (int line = 0; line < 32; ++line)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const uint8_t* bytes = codes + line * 64 + half * 32;
      const __m512bh value = _mm512_cvtne2ps_pbh(floats_of(bytes + 16), floats_of(bytes));
      _mm512_store_si512(q + ((line / 4 * 2 + half) * 4 + line % 4) * 32, (__m512i)value);
    }
}

inline __m512 halves_at(const uint8_t* halves, int j) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + j * 32)));
}

// 2^(byte - 128), as group_scale() of block_format.cc has it.
inline __m512 powers_of(__m512i exponent) {
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
  const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), exponent);
  const __mmask16 subnormal = _mm512_cmplt_epu32_mask(exponent, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_blend_epi32(subnormal, normal, small));
}

inline __m512i bytes_at(const uint8_t* bytes) {  // 16 uint8
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

template <int group>
inline void unpack_scales(const Unpack& u) {
  const Format& f = *u.format;
  const auto* column = static_cast<const uint8_t*>(u.column);
  constexpr int groups = block::unit / group;
#pragma GCC unroll 2
  for (int g = 0; g < groups; ++g)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int64_t at = (u.index * groups + g) * block::width + j * 16;
      float* d = u.d + g * block::width + j * 16;
      float* m = u.m + g * block::width + j * 16;
      if (f.power) {
        _mm512_store_ps(d, powers_of(bytes_at(column + f.scale + at)));
        continue;
      }
      __m512 scale = halves_at(column + f.d, j);
      __m512 minimum = f.minimum ? halves_at(column + f.m, j) : _mm512_setzero_ps();
      if (f.integers) {
        if (f.nibbles) {
          const __m512i both = bytes_at(column + f.scale + at);
          scale = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
          minimum = _mm512_mul_ps(minimum, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
        } else {
          scale = _mm512_mul_ps(scale, floats_of(column + f.scale + at));
          if (f.minimum) minimum = _mm512_mul_ps(minimum, floats_of(column + f.minimum_at + at));
        }
      }
      _mm512_store_ps(d, scale);
      if (f.minimum) _mm512_store_ps(m, minimum);
    }
}

template <int low, int high, int group>
void unpack(const Unpack& u) {
  const auto* codes = static_cast<const uint8_t*>(u.column) + u.format->codes + u.index * u.format->unit_bytes;
  for (int64_t line = 0; line < u.format->unit_bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(codes) + u.ahead + line, _MM_HINT_T0);
  unpack_scales<group>(u);
  auto* q = static_cast<uint16_t*>(u.q);
  if constexpr (low == 8) {
    unpack_bytes(codes, q);
  } else {
    unpack_pairs<low, high>(codes, *u.format, q, std::make_integer_sequence<int, block::unit / 2>());
  }
}

template <int rows, int group, bool minimum>
void multiply(const Tile& t) {
  const uint16_t* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) x[r] = static_cast<const uint16_t*>(t.x[r]);
  const auto* q = static_cast<const uint16_t*>(t.q);
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
    const float* d = t.d + g * block::width;
    const float* m = t.m + g * block::width;
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      x[r] += group;
      const __m512 x_sum = minimum ? _mm512_set1_ps(t.x_sums[r][t.first_group + g]) : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        float* to = t.sums + r * block::width + j * 16;
        __m512 total = _mm512_fmadd_ps(_mm512_load_ps(d + j * 16), sums[r][j], _mm512_load_ps(to));
        if constexpr (minimum) total = _mm512_fnmadd_ps(_mm512_load_ps(m + j * 16), x_sum, total);
        _mm512_store_ps(to, total);
      }
    }
  }
}

template <int low, int high, int group, bool minimum>
constexpr Kernels kernels{unpack<low, high, group>,
                          {multiply<1, group, minimum>, multiply<2, group, minimum>, multiply<3, group, minimum>,
                           multiply<4, group, minimum>, multiply<5, group, minimum>, multiply<6, group, minimum>}};

}  // namespace

const Kernels* block_bf16_kernels(const Format& f);
const Kernels* block_bf16_kernels(const Format& f) {
  if (f.group == 16) {
    if (f.low_bits == 4) return &kernels<4, 2, 16, false>;
    return f.minimum ? &kernels<2, 0, 16, true> : &kernels<2, 1, 16, false>;
  }
  if (f.low_bits == 8) return &kernels<8, 0, 32, false>;
  if (f.high_bits == 1) return f.minimum ? &kernels<4, 1, 32, true> : &kernels<4, 1, 32, false>;
  return f.minimum ? &kernels<4, 0, 32, true> : &kernels<4, 0, 32, false>;
}

}  // namespace medley::avx512
