// Tiles with float32 x and float32, bf16 or f16 weights: weights are widened in registers, products are fused.
#include <immintrin.h>

#include <type_traits>

#include "kernels/panel_linear.h"

namespace medley::avx512 {
namespace {

using panel::Tile;

struct Bf16 {};
struct F16 {};

// 16 outputs' weights at k and k + 1 from one vector of pairs.
struct Pair {
  __m512 even, odd;
};
inline Pair widen(Bf16, __m512i pairs) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xffff0000u))))};
}
inline Pair widen(F16, __m512i pairs) {
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)),
          _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs, 16)))};
}

// One row of x leaves the processor waiting for memory: fetch the panel a little ahead of the loads.
constexpr int64_t ahead_bytes = 4096;
inline void prefetch(const void* line) {
  const char* ahead = static_cast<const char*>(line) + ahead_bytes;
  for (int i = 0; i < 256; i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
}

template <int rows, class Weight>
void tile(const Tile& t) {
  __m512 sums[rows][4];
  const float* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const float*>(t.x[r]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      sums[r][j] = t.start ? _mm512_setzero_ps() : _mm512_load_ps(t.sums + r * panel::width + j * 16);
  }
  const auto add = [&](int64_t k, int j, __m512 weights) {
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) sums[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(x[r][k]), weights, sums[r][j]);
  };
  if constexpr (std::is_same_v<Weight, float>) {
    const float* line = static_cast<const float*>(t.panel) + t.begin * panel::width;
    for (int64_t k = t.begin; k < t.end; ++k, line += panel::width) {
      if constexpr (rows <= 2) prefetch(line);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) add(k, j, _mm512_loadu_ps(line + j * 16));
    }
  } else {
    const uint16_t* line = static_cast<const uint16_t*>(t.panel) + t.begin * panel::width;
    int64_t k = t.begin;
    for (; k + 2 <= t.end; k += 2, line += 2 * panel::width) {
      if constexpr (rows <= 2) prefetch(line);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Pair pair = widen(Weight{}, _mm512_loadu_si512(line + j * 32));
        add(k, j, pair.even);
        add(k + 1, j, pair.odd);
      }
    }
    if (k < t.end)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) add(k, j, widen(Weight{}, _mm512_loadu_si512(line + j * 32)).even);
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(t.sums + r * panel::width + j * 16, sums[r][j]);
}

template <class Weight>
constexpr panel::Tiles tiles() {
  return {{tile<1, Weight>, tile<2, Weight>, tile<3, Weight>, tile<4, Weight>, tile<5, Weight>, tile<6, Weight>}};
}

}  // namespace

extern const panel::Tiles f32_weights, bf16_weights, f16_weights;
const panel::Tiles f32_weights = tiles<float>();
const panel::Tiles bf16_weights = tiles<Bf16>();
const panel::Tiles f16_weights = tiles<F16>();

}  // namespace medley::avx512
