// medley_bench: the kernels at the shapes that decide a model's speed, each as a share of what this machine can do at
// best, measured in the same run. Every figure is the best of many runs: the machine may be shared.
//
//   medley_bench [--threads N] [--level ref|simd|avx512] [--only TEXT] [--seconds S] [--clock wall|cpu]
//
// On a busy machine `--threads 1 --clock cpu` counts the processor time of the one thread.
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <functional>
#include <string_view>

#include "bench.h"
#include "ceilings.h"

namespace medley::bench {

double now(Clock clock) {
  timespec time;
  clock_gettime(clock == Clock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

double best_seconds(Clock clock, double seconds, const std::function<void()>& run) {
  double best = 1e30;
  const double begin = now(Clock::wall);
  for (int tries = 0;; ++tries) {
    const double start = now(clock);
    run();
    best = std::min(best, now(clock) - start);
    if (tries >= 4 && now(Clock::wall) - begin > seconds) return best;
  }
}

void Bench::report(std::string_view what, std::string_view kernel, double work, double ceiling, std::string_view unit,
                   const std::function<void()>& run) {
  if (!wanted(what)) return;
  run();
  const double time = best_seconds(clock, seconds, run);
  const double rate = work / time;
  fmt::print("{:<46} {:<26} {:>10.1f} us {:>9.2f} {:<8}", what, kernel, time * 1e6, rate / 1e9, unit);
  fmt::print("{}\n", ceiling > 0 ? fmt::format("{:>5.1f} %", 100 * rate / ceiling) : "");
  std::fflush(stdout);
}

}  // namespace medley::bench

int main(int argc, char** argv) {
  using namespace medley;
  using namespace medley::bench;
  int threads = 0;
  Level level = Level::sm90;
  std::string only;
  double seconds = 0.5;
  Clock clock = Clock::wall;
  constexpr std::string_view filter = "--benchmark_filter=";  // as ./dev bench passes it
  if (argc == 2 && std::string_view(argv[1]).starts_with(filter))
    only = std::string_view(argv[1]).substr(filter.size());
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view option = argv[i], value = argv[i + 1];
    if (option == "--threads") threads = std::atoi(argv[i + 1]);
    if (option == "--only") only = value;
    if (option == "--clock") clock = value == "cpu" ? Clock::cpu : Clock::wall;
    if (option == "--seconds") seconds = std::atof(argv[i + 1]);
    if (option == "--level") level = value == "ref" ? Level::ref : value == "simd" ? Level::simd : Level::avx512;
  }
  ThreadPool pool(threads);
  Workspace workspace;
  const Ceilings ceilings = measure_ceilings(pool, clock);
  fmt::print("{} threads; ceilings: bf16 {:.0f} GFLOP/s, f32 {:.0f} GFLOP/s, reading memory {:.1f} GB/s\n", pool.size(),
             ceilings.bf16_flops / 1e9, ceilings.f32_flops / 1e9, ceilings.read_bytes / 1e9);
  Bench bench{{pool, workspace}, ceilings, KernelSelector(Device::cpu, level), only, seconds, clock};
  bench_linear(bench);
  bench_attention(bench);
  bench_sparse_attention(bench);
  bench_state_space(bench);
  bench_rows(bench);
}
