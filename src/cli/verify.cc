// medley verify: a checkpoint's logits and greedy tokens against those recorded beside it.
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

#include "base/text.h"
#include "cli/command.h"
#include "cli/expected.h"
#include "cli/options.h"
#include "cli/prompt_logits.h"
#include "cli/terminal.h"

namespace medley::cli {
namespace {

struct VerifyOptions {
  std::string folder;
  int64_t chunk = 0;
  bool quiet = false;
  EngineOptions engine;
};

// Layers that round one after the other: mixers and feed-forward parts come in pairs, mixers first.
int depth_of(const ModelInfo& info) {
  int parts = 0;
  for (const auto& [kind, count] : info.layers) parts += count;
  return (parts + 1) / 2;
}

std::string describe(const GreedyMatch& match, const ExpectedCase& expected, const std::vector<int32_t>& got) {
  const size_t steps = expected.greedy.size();
  if (match.wrong_at >= 0)
    return fmt::format("greedy {}/{}: step {} gives {}, want {} (gap {:.3g})", match.matched, steps, match.wrong_at,
                       got.at(size_t(match.wrong_at)), expected.greedy[size_t(match.wrong_at)],
                       expected.greedy_gap[size_t(match.wrong_at)]);
  if (match.undecided_from >= 0)
    return fmt::format("greedy {}/{} (undecided from step {}: gap {:.3g})", match.matched, steps, match.undecided_from,
                       expected.greedy_gap[size_t(match.undecided_from)]);
  return fmt::format("greedy {}/{}", match.matched, steps);
}

bool report(const ExpectedCase& expected, const LogitError& error, const Bars& bars, const GreedyMatch& match,
            const std::vector<int32_t>& got) {
  const double share = (bars.by_rms ? error.rms : error.max) / error.deviation;
  const bool close = share <= bars.bar;  // false for NaN
  const bool pass = close && match.wrong_at < 0;
  std::cout << fmt::format("{} {}: {} tokens, {} error {:.2e} of the deviation (aim {:.0e}, bar {:.0e}), {}{}\n",
                           pass ? "PASS" : "FAIL", expected.name, expected.input_ids.size(),
                           bars.by_rms ? "rms" : "max", share, bars.aim, bars.bar, describe(match, expected, got),
                           pass && share > bars.aim ? ", aim missed" : "")
            << std::flush;
  return pass;
}

int verify(VerifyOptions options) {
  const std::filesystem::path folder = options.folder;
  Terminal terminal(options.quiet);
  options.engine.progress = terminal.progress();
  const std::unique_ptr<EngineCore> core = EngineCore::load(folder, options.engine, options.chunk);
  terminal.clear_progress();
  terminal.line("on " + core->backend());
  const Expected expected = read_expected(folder / "expected.safetensors");
  if (expected.vocab != core->info().vocab_size)
    fail("{}: logits have {} columns, the model's vocabulary has {} tokens", (folder / "expected.safetensors").string(),
         expected.vocab, core->info().vocab_size);
  const Bars bars = bars_for(core->dtype(), depth_of(core->info()));

  std::vector<std::vector<int32_t>> prompts;
  size_t steps = 0;
  for (const ExpectedCase& one : expected.cases) {
    prompts.push_back(one.input_ids);
    steps = std::max(steps, one.greedy.size());
  }
  const std::vector<std::vector<int32_t>> greedy = greedy_tokens(*core, prompts, int32_t(steps));
  bool pass = true;
  for (size_t i = 0; i < expected.cases.size(); ++i) {
    const ExpectedCase& one = expected.cases[i];
    const LogitError error = compare_logits(prompt_logits(*core, one.input_ids).values, one.logits);
    pass &= report(one, error, bars, match_greedy(greedy[i], one, bars.largest * error.deviation), greedy[i]);
  }
  if (!expected.ignored.empty()) std::cout << fmt::format("note: not compared: {}\n", join(expected.ignored, ", "));
  return pass ? done : failed;
}

constexpr const char* footer =
    R"(DIR holds a checkpoint and expected.safetensors with, for every K, input_ids.K, logits.K, greedy.K (the greedy
continuation) and greedy_gap.K (distance between the two best logits at that step). One line for every K; exit code 1
if any fails. Greedy tokens count up to the first step whose gap is under twice the allowed error.

Examples:
  medley verify models/demo-jamba
  medley verify tests/golden/deepseek_v3 --chunk 3 --reproducible)";

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "Compare logits and greedy tokens with those recorded beside a model");
  auto options = std::make_shared<VerifyOptions>();
  options->engine.dtype = "f32";
  command->add_option("DIR", options->folder, "Folder of the checkpoint and its expected.safetensors")
      ->required()
      ->type_name("");
  add_chunk_option(*command, options->chunk);
  add_compute_options(*command, options->engine);
  add_size_option(*command, "--memory", options->engine.memory, "Memory for the cache; what is useful by default");
  command->add_flag("--quiet", options->quiet, "Nothing on stderr but errors");
  command->footer(footer);
  command->callback([options, &action] { action = [options] { return verify(*options); }; });
}

}  // namespace medley::cli
