// Activations as int8 (`--activations int8`): of every 32 columns of a row of x, integers q and one scale.
//
//   largest = max |x|;  scale = largest / 127;  q = x * (127 / largest), rounded to the nearest, ties to even
//
// All in float32, so that every kernel multiplies the same integers. A product with a group of a weight
// (block_format.h) is then d * scale * (sum of integers, exact) - m * (scale * (sum of q, exact)); with std::fma:
//
//   total = fma(d * scale, sum, total);  total = fma(-m, scale * q_sum, total)
//
// groups in ascending order. That is the same bits on any processor that has FMA.
//
// Columns among which one is infinite or NaN get the scale NaN, and the outputs are NaN. Where all are below 2^-100
// scale and q are 0.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace medley::block_int8 {

constexpr int columns = 32;  // with one scale

// Writes q[0 ... 32); returns the scale.
float quantise(const float* x, int8_t* q);
float quantise(const bf16* x, int8_t* q);

}  // namespace medley::block_int8
