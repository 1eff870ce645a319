// Tiles with bf16 x and bf16 weights: VDPBF16PS takes two steps of k at once, products exact, sums float32.
#include <immintrin.h>

#include <cstring>

#include "kernels/panel_linear.h"

namespace medley::avx512 {
namespace {

using panel::Tile;

inline __m512bh pairs_at(const uint16_t* line) {
  return __m512bh(_mm512_loadu_si512(line));
}
inline __m512bh broadcast(uint32_t pair) {
  return __m512bh(_mm512_set1_epi32(int(pair)));
}

template <int rows>
void tile(const Tile& t) {
  __m512 sums[rows][4];
  const uint16_t* x[rows];
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r) {
    x[r] = static_cast<const uint16_t*>(t.x[r]);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      sums[r][j] = t.start ? _mm512_setzero_ps() : _mm512_load_ps(t.sums + r * panel::width + j * 16);
  }
  const uint16_t* line = static_cast<const uint16_t*>(t.panel) + t.begin * panel::width;
  int64_t k = t.begin;
  for (; k + 2 <= t.end; k += 2, line += 2 * panel::width) {
    for (int i = t.fetch_first; i < t.fetch_last; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(line) + t.ahead + i * 64, _MM_HINT_T0);
    const __m512bh w[4] = {pairs_at(line), pairs_at(line + 32), pairs_at(line + 64), pairs_at(line + 96)};
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r) {
      uint32_t pair;
      std::memcpy(&pair, x[r] + k, 4);
      const __m512bh both = broadcast(pair);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], both, w[j]);
    }
  }
  if (k < t.end)
#pragma GCC unroll 6
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        sums[r][j] = _mm512_dpbf16_ps(sums[r][j], broadcast(x[r][k]), pairs_at(line + j * 32));
#pragma GCC unroll 6
  for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) _mm512_store_ps(t.sums + r * panel::width + j * 16, sums[r][j]);
}

}  // namespace

extern const panel::Tiles bf16_tiles;
const panel::Tiles bf16_tiles = {{tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>}};

}  // namespace medley::avx512
