#include "ceilings.h"

#include <atomic>
#include <cstring>

#include "kernels/cpu.h"
#include "tensor/tensor.h"

namespace medley::bench {
namespace {

std::atomic<double> sink;  // what the loops return, so that none is left out

}  // namespace

Ceilings measure_ceilings(ThreadPool& threads, Clock clock) {
  Ceilings found;
  const int n = threads.size();
  if (!cpu::has_avx512_bf16()) return found;  // no share is printed then
  constexpr int64_t rounds = 200'000;
  const double f32 = best_seconds(
      clock, 0.5, [&] { threads.parallel_for(n, [&](int64_t, int) { sink = double(f32_loop(rounds)); }); });
  found.f32_flops = 24.0 * 32 * rounds * n / f32;
  const double bf16 = best_seconds(
      clock, 0.5, [&] { threads.parallel_for(n, [&](int64_t, int) { sink = double(bf16_loop(rounds)); }); });
  found.bf16_flops = 24.0 * 64 * rounds * n / bf16;
  constexpr int64_t size = int64_t(512) << 20, part = int64_t(1) << 20;
  const Buffer memory{size_t(size)};
  std::memset(memory.data(), 1, memory.bytes());
  const double read = best_seconds(clock, 1, [&] {
    threads.parallel_for(size / part,
                         [&](int64_t task, int) { sink = double(read_loop(memory.data() + task * part, part)); });
  });
  found.read_bytes = double(size) / read;
  return found;
}

}  // namespace medley::bench
