// medley bench kernels: the time of each kernel beside its limit and beside others' kernels.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/kernel_bench.h"

namespace medley::cli {
namespace {

constexpr const char* examples =
    R"(The limit of a case is the bytes and operations it cannot avoid, over rates that the same run measures. A kernel that
is not the portable one is compared with it before it is timed (but for the largest cases, which say so); times are
medians with a cold L2. With --peers a second program
times others' kernels on the same cases, in turns: the last column says how much longer they take (below 1: less).

Examples:
  medley bench kernels --backend cuda
  medley bench kernels attention states --peers "python3 bench/kernels/cuda/peers.py")";

struct Options {
  KernelBenchOptions bench;
  std::string backend = "cuda";
};

int bench_kernels(const Options& options) {
  if (options.backend == "cpu") fail("the kernels of a CPU are timed by ./dev bench (build/bench/bin/medley_bench)");
  bench_cuda_kernels(options.bench);
  return done;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("kernels", "Time of each kernel, its limit, and others' kernels");
  auto options = std::make_shared<Options>();
  CLI::Option* kinds = command->add_option("KIND", options->bench.kinds, "Only these kinds of kernels")->type_name("");
  if (const std::vector<std::string> names = kernel_kinds(); !names.empty()) kinds->check(CLI::IsMember(names));
  command->add_option("--backend", options->backend, "Whose kernels: cuda")
      ->check(CLI::IsMember({"cuda", "cpu"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--peers", options->bench.peers, "Command of the program that times others")
      ->type_name("COMMAND");
  command->footer(examples);
  command->callback([options, &action] { action = [options] { return bench_kernels(*options); }; });
}

}  // namespace medley::cli
