// medley bench model: tokens per second of a model's steps, with its weights or with random ones.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "engine/model_bench.h"
#include "tensor/device_memory.h"

namespace medley::cli {
namespace {

struct BenchOptions {
  std::string model;
  std::vector<int32_t> batches{1}, contexts{4096}, prefills;
  int steps = 32;
  EngineOptions engine;
};

int bench_model(const BenchOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  LoadedModel loaded = load_model(*open_model(options.model), options.engine);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << fmt::format("{} on {}, {}, {} after {:.2f} s\n", options.model, loaded.backend(), name_of(loaded.dtype),
                           options.engine.random_weights ? "random weights" : "loaded", seconds);
  if (loaded.device == Device::cuda) {
    const DeviceInfo info = device_info();
    std::cout << fmt::format("device memory in use {} of {}\n", human_bytes(info.total_bytes - info.free_bytes),
                             human_bytes(info.total_bytes));
  }
  const ModelBench bench(loaded, options.engine.graphs);
  for (const int32_t batch : options.batches)
    for (const int32_t context : options.contexts) {
      const DecodeCase one{.batch = batch, .context = context, .steps = options.steps};
      const DecodeTimes times = bench.decode(one);
      std::cout
          << fmt::format(
                 "decode  batch {:4} context {:6}: {:9.1f} tok/s, step {:8.3f} ms, one by one {:8.3f} ms, without the "
                 "choice {:8.3f} ms, cache {} a step\n",
                 batch, context, times.tokens_per_second(one), times.step_seconds * 1e3, times.serial_seconds * 1e3,
                 times.forward_seconds * 1e3, human_bytes(uint64_t(bench.cache_traffic(one))))
          << std::flush;
    }
  for (const int32_t tokens : options.prefills) {
    const double prefill = bench.prefill(tokens, 3);
    std::cout << fmt::format("prefill {:6} tokens: {:9.1f} tok/s, {:8.2f} ms\n", tokens, tokens / prefill,
                             prefill * 1e3)
              << std::flush;
  }
  return done;
}

constexpr const char* examples =
    R"(The cache holds random numbers in place of computed contexts. Times are medians of whole steps on the host's clock.

Examples:
  medley bench model configs/llama-3-8b.json --random-weights --batch 1,64 --context 4096
  medley bench model models/demo-jamba --batch 8 --context 512 --prefill 256)";

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Time a model's steps, or single kernels");
  bench->require_subcommand(1);
  add_bench_kernels(*bench, action);
  CLI::App* command = bench->add_subcommand("model", "Tokens per second of decoding, and of prefill");
  auto options = std::make_shared<BenchOptions>();
  command->add_option("MODEL", options->model, "Folder of a checkpoint; with --random-weights also a config.json")
      ->required()
      ->type_name("");
  command->add_flag("--random-weights", options->engine.random_weights, "Read no weights, make them up");
  const auto add = [&](const char* name, std::vector<int32_t>& values, const char* help) {
    command->add_option(name, values, help)->delimiter(',')->check(quiet(CLI::PositiveNumber))->type_name("N,...");
  };
  add("--batch", options->batches, "Requests that decode together [1]");
  add("--context", options->contexts, "Tokens that each has behind it [4096]");
  add("--prefill", options->prefills, "Time prompts of these lengths too");
  command->add_option("--steps", options->steps, "Steps to time")
      ->check(quiet(CLI::PositiveNumber))
      ->type_name("N")
      ->capture_default_str();
  add_compute_options(*command, options->engine);
  command->footer(examples);
  bench->footer(examples);
  command->callback([options, &action] { action = [options] { return bench_model(*options); }; });
}

}  // namespace medley::cli
