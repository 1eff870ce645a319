// Random numbers in place of weights: for measuring a model whose weights are not there.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace medley {

class ThreadPool;

// Fills a contiguous f32 or bf16 view with numbers between -scale and scale that depend on the seed and an element's
// index alone. Done on return.
void fill_random(const TensorView& view, uint64_t seed, float scale, ThreadPool& threads);

// One of those numbers, between -1 and 1 (splitmix64's finaliser: Steele, Lea and Flood 2014).
inline
#ifdef __CUDACC__
    __host__ __device__
#endif
    float
    random_element(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return float(int32_t(z >> 32)) * 0x1p-31f;
}

namespace cuda {
void fill_random(const TensorView& view, uint64_t seed, float scale);
}

}  // namespace medley
