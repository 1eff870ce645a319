#include <immintrin.h>

#include <cstdint>

namespace medley::bench {

float bf16_loop(int64_t rounds);
float f32_loop(int64_t rounds);
int64_t read_loop(const void* data, int64_t bytes);

float bf16_loop(int64_t rounds) {
  __m512 sums[24];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  __m512i a = _mm512_set1_epi32(0x3f803f80), b = _mm512_set1_epi32(0x3f003f00);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_dpbf16_ps(sum, __m512bh(a), __m512bh(b));
  }
  for (int i = 1; i < 24; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_reduce_add_ps(sums[0]);
}

float f32_loop(int64_t rounds) {
  __m512 sums[24];
  for (auto& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(1), b = _mm512_set1_ps(0.5f);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 24
    for (auto& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  for (int i = 1; i < 24; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  return _mm512_reduce_add_ps(sums[0]);
}

int64_t read_loop(const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  __m512i sums[8];
  for (auto& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t i = 0; i + 512 <= bytes; i += 512)
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      _mm_prefetch(at + i + j * 64 + 4096, _MM_HINT_T0);
      sums[j] = _mm512_add_epi64(sums[j], _mm512_loadu_si512(at + i + j * 64));
    }
  for (int j = 1; j < 8; ++j) sums[0] = _mm512_add_epi64(sums[0], sums[j]);
  return _mm512_reduce_add_epi64(sums[0]);
}

}  // namespace medley::bench
