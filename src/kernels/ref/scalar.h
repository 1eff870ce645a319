// What the reference kernels share: loads of any float type, and one dot product.
#pragma once

#include <cmath>
#include <string>

#include "kernels/exec_context.h"
#include "tensor/tensor.h"

namespace medley::ref {

inline float to_float(float value) {
  return value;
}
inline float to_float(bf16 value) {
  return float(value);
}
inline float to_float(f16 value) {
  return float(value);
}
inline void store(float* to, float value) {
  *to = value;
}
inline void store(bf16* to, float value) {
  *to = bf16(value);
}

// Eight partial sums, so that the compiler may use vectors without changing the order of additions.
template <class A, class B>
float dot(const A* a, const B* b, int64_t n) {
  float sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += to_float(a[i + lane]) * to_float(b[i + lane]);
  float tail = 0;
  for (; i < n; ++i) tail += to_float(a[i]) * to_float(b[i]);
  return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + tail;
}

inline float silu(float x) {
  return x / (1.0f + std::exp(-x));
}
inline float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
inline float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// Calls f with a null pointer of the view's float type: f(static_cast<float*>(nullptr)).
template <class F>
void with_float_type(DType dtype, F&& f) {
  if (dtype == DType::f32) return f(static_cast<float*>(nullptr));
  if (dtype == DType::bf16) return f(static_cast<bf16*>(nullptr));
  MEDLEY_CHECK(!"f32 or bf16");
}

// The plain kernels take every description.
template <class Desc>
std::string any(const Desc&) {
  return {};
}

}  // namespace medley::ref
