#pragma once

#include <functional>
#include <random>
#include <string>
#include <string_view>

#include "ceilings.h"
#include "kernels/op.h"

namespace medley::bench {

struct Bench {
  ExecContext context;
  Ceilings ceilings;
  KernelSelector selector;
  std::string only;  // names that contain it
  double seconds = 0.5;
  Clock clock = Clock::wall;

  bool wanted(std::string_view what) const { return only.empty() || what.find(only) != std::string_view::npos; }
  // Prints one line: `work` (operations or bytes of one run) per second, in `unit`, and its share of `ceiling`.
  void report(std::string_view what, std::string_view kernel, double work, double ceiling, std::string_view unit,
              const std::function<void()>& run);
};

// Memory filled with small normal values.
inline Buffer random_buffer(DType dtype, int64_t elements, float scale = 1) {
  Buffer buffer(size_t(elements) * size_of(dtype));
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, scale);
  float values[4096];
  for (float& value : values) value = normal(rng);
  for (int64_t i = 0; i < elements; ++i) {
    const float value = values[i % 4093];
    if (dtype == DType::f32) reinterpret_cast<float*>(buffer.data())[i] = value;
    if (dtype == DType::bf16) reinterpret_cast<bf16*>(buffer.data())[i] = bf16(value);
    if (dtype == DType::f16) reinterpret_cast<f16*>(buffer.data())[i] = f16(value);
  }
  return buffer;
}

void bench_linear(Bench& bench);
void bench_attention(Bench& bench);
void bench_sparse_attention(Bench& bench);
void bench_state_space(Bench& bench);
void bench_rows(Bench& bench);  // norms, activations, rope

}  // namespace medley::bench
