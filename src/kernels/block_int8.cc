#include "kernels/block_int8.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace medley::block_int8 {

// Without library calls and branches in the loops: the compiler makes vectors of them.
float quantise(const float* x, int8_t* q) {
  int32_t largest_bits = 0;  // of magnitudes: as integers they are in the same order, and NaN is the largest
  for (int i = 0; i < columns; ++i) largest_bits = std::max(largest_bits, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  const auto largest = std::bit_cast<float>(largest_bits);
  if (largest_bits >= 0x7f800000 || largest < 0x1p-100f) {
    std::memset(q, 0, columns);
    return largest_bits >= 0x7f800000 ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const float inverse = 127 / largest;
  constexpr float to_integer = 0x1.8p23f;  // added, it leaves the rounded integer in the lowest bits
  for (int i = 0; i < columns; ++i)
    q[i] = int8_t(std::bit_cast<int32_t>(x[i] * inverse + to_integer) - std::bit_cast<int32_t>(to_integer));
  return largest / 127;
}

float quantise(const bf16* x, int8_t* q) {
  float wide[columns];
  for (int i = 0; i < columns; ++i) wide[i] = float(x[i]);
  return quantise(wide, q);
}

}  // namespace medley::block_int8
