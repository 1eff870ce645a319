// What the units for blocks share: a panel's lines, and the scales of a unit's groups as floats. Everything here is
// internal to the unit that includes it (see panel_linear.h).
#pragma once

#include <immintrin.h>

#include "kernels/block_linear.h"

// Inlined whatever the compiler thinks of their size: sums handed over in memory cost more than the products.
#define MEDLEY_INLINE [[gnu::always_inline]] inline

namespace medley::avx512 {
namespace {

using block::Direct;
using block::Format;
using block::Kernels;
using block::Tile;
using block::Unpack;

MEDLEY_INLINE __m512i line_at(const uint8_t* lines, int index) {
  return _mm512_loadu_si512(lines + index * 64);
}
template <int by>  // right; negative: left
MEDLEY_INLINE __m512i shifted(__m512i v) {
  if constexpr (by > 0) return _mm512_srli_epi16(v, by);
  if constexpr (by < 0) return _mm512_slli_epi16(v, -by);
  return v;
}

MEDLEY_INLINE __m512 floats_of(const uint8_t* bytes) {  // 16 int8
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
}

MEDLEY_INLINE __m512 halves_at(const uint8_t* halves, int j) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + j * 32)));
}

// 2^(byte - 128), as group_scale() of block_format.cc has it.
MEDLEY_INLINE __m512 powers_of(__m512i exponent) {
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
  const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x200000), exponent);
  const __mmask16 subnormal = _mm512_cmplt_epu32_mask(exponent, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_blend_epi32(subnormal, normal, small));
}

MEDLEY_INLINE __m512i bytes_at(const uint8_t* bytes) {  // 16 uint8
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}

enum class Scale { plain, integers, nibbles, power };  // as in block_format.h; nibbles: of integers

template <int group, Scale kind, bool minima>
MEDLEY_INLINE void unpack_scales(const Format& f, const uint8_t* column, int64_t index, float* d_out, float* m_out) {
  constexpr int groups = block::unit / group;
#pragma GCC unroll 2
  for (int g = 0; g < groups; ++g)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const int64_t at = (index * groups + g) * block::width + j * 16;
      float* d = d_out + g * block::width + j * 16;
      float* m = m_out + g * block::width + j * 16;
      if constexpr (kind == Scale::power) {
        _mm512_store_ps(d, powers_of(bytes_at(column + f.scale + at)));
        continue;
      }
      __m512 scale = halves_at(column + f.d, j);
      __m512 minimum = minima ? halves_at(column + f.m, j) : _mm512_setzero_ps();
      if constexpr (kind == Scale::nibbles) {
        const __m512i both = bytes_at(column + f.scale + at);
        scale = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
        minimum = _mm512_mul_ps(minimum, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4)));
      } else if constexpr (kind == Scale::integers) {
        scale = _mm512_mul_ps(scale, floats_of(column + f.scale + at));
        if (minima) minimum = _mm512_mul_ps(minimum, floats_of(column + f.minimum_at + at));
      }
      _mm512_store_ps(d, scale);
      if (minima) _mm512_store_ps(m, minimum);
    }
}

MEDLEY_INLINE void fetch(const uint8_t* codes, int64_t ahead, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64)
    _mm_prefetch(reinterpret_cast<const char*>(codes) + ahead + line, _MM_HINT_T0);
}

}  // namespace
}  // namespace medley::avx512
