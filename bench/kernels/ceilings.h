// What this machine can do at best, measured in the same run as the kernels: the ceilings their figures are a share of.
#pragma once

#include <functional>

#include "base/thread_pool.h"

namespace medley::bench {

enum class Clock { wall, cpu };
double now(Clock clock);  // seconds

// The shortest of many runs, over about `seconds`.
double best_seconds(Clock clock, double seconds, const std::function<void()>& run);

struct Ceilings {
  double bf16_flops = 0;  // VDPBF16PS on registers; 0 where the processor has none
  double f32_flops = 0;   // fused multiply-add of floats, widest vectors
  double read_bytes = 0;  // per second, from memory larger than any cache
};

Ceilings measure_ceilings(ThreadPool& threads, Clock clock);

// The loops of ceilings_avx512.cc, entered only where the processor has the instructions. Each returns a value that
// depends on all of its work.
float bf16_loop(int64_t rounds);  // 24 x 64 operations a round
float f32_loop(int64_t rounds);   // 24 x 32 operations a round
int64_t read_loop(const void* data, int64_t bytes);

}  // namespace medley::bench
