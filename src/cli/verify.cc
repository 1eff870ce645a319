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
#include "models/model_source.h"

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

// Prints a case's line; `rest` is what else there is to say. `good`: the rest is as it should be.
bool report(const std::string& name, size_t tokens, const LogitError& error, const Bars& bars, const std::string& rest,
            bool good) {
  const double share = (bars.by_rms ? error.rms : error.max) / error.deviation;
  const bool pass = share <= bars.bar && good;  // false for NaN
  std::cout << fmt::format("{} {}: {} tokens, {} error {:.2e} of the deviation (aim {:.1e}, bar {:.1e}){}{}\n",
                           pass ? "PASS" : "FAIL", name, tokens, bars.by_rms ? "rms" : "max", share, bars.aim, bars.bar,
                           rest, pass && share > bars.aim ? ", aim missed" : "")
            << std::flush;
  return pass;
}

// Sparse attention chooses the keys with the best index scores, and where scores are equal at the cut there is no right
// choice: transformers' falls out of a partial sort. Two engines that take opposite ends of such ties, and are
// otherwise the same, show what hangs on one.
class Ties {
 public:
  Ties(const ModelSource& model, const VerifyOptions& options, const EngineCore& core)
      : model_(model), options_(options) {
    for (const std::string& kernel : core.kernels()) possible_ |= kernel.find("index_select") != std::string::npos;
  }

  bool possible() const { return possible_; }
  // The prompt's rows that hang on no tie: equal in every bit whichever end is taken.
  std::vector<size_t> decided_rows(const std::vector<int32_t>& prompt, size_t vocab) {
    if (!earlier_) earlier_ = load(false), later_ = load(true);
    return equal_rows(prompt_logits(*earlier_, prompt).values, prompt_logits(*later_, prompt).values, vocab);
  }

 private:
  std::unique_ptr<EngineCore> load(bool later_ties) const {
    EngineOptions options = options_.engine;
    options.later_ties = later_ties;
    options.backend = "cpu";
    options.kernels = "ref";
    return EngineCore::load(model_, options, options_.chunk);
  }

  const ModelSource& model_;
  const VerifyOptions& options_;
  bool possible_ = false;
  std::unique_ptr<EngineCore> earlier_, later_;
};

// A case that fails as a whole, held to account for the rows without a tie. Fewer than half of them would show little:
// an indexer whose scores are all alike must not pass.
bool verify_decided_rows(const ExpectedCase& expected, const std::vector<float>& got, const std::vector<size_t>& rows,
                         const Bars& bars) {
  const size_t tokens = expected.input_ids.size(), vocab = expected.logits.size() / tokens;
  const LogitError error = compare_logits(rows_of(got, rows, vocab), rows_of(expected.logits, rows, vocab));
  const bool enough = 2 * rows.size() >= tokens;
  std::string rest = fmt::format(
      "; {} more hang on keys with equal index scores, which leave no right choice: not compared, nor greedy tokens{}",
      tokens - rows.size(), expected.mtp_logits.empty() ? "" : " and mtp logits");
  if (!enough) rest += "; too many for a verdict";
  return report(expected.name, rows.size(), error, bars, rest, enough);
}

bool verify_case(EngineCore& core, const ExpectedCase& expected, const std::vector<int32_t>& greedy, const Bars& bars,
                 Ties& ties) {
  const PromptLogits got = prompt_logits(core, expected.input_ids);
  const LogitError error = compare_logits(got.values, expected.logits);
  const size_t tokens = expected.input_ids.size(), vocab = expected.logits.size() / tokens;
  if (ties.possible() && error.max > bars.largest * error.deviation) {
    const std::vector<size_t> rows = ties.decided_rows(expected.input_ids, vocab);
    if (rows.size() < tokens && !rows.empty()) return verify_decided_rows(expected, got.values, rows, bars);
  }
  const GreedyMatch match = match_greedy(greedy, expected, bars.largest * error.deviation);
  bool pass = report(expected.name, tokens, error, bars, ", " + describe(match, expected, greedy), match.wrong_at < 0);
  if (!expected.mtp_logits.empty())
    pass &=
        report(expected.name + " mtp", tokens - 1, compare_logits(got.mtp_values, expected.mtp_logits), bars, "", true);
  return pass;
}

int verify(VerifyOptions options) {
  const std::filesystem::path model = options.folder;
  const std::unique_ptr<ModelSource> source = open_model(model);  // names what is missing
  const std::filesystem::path folder = std::filesystem::is_directory(model) ? model : model.parent_path();
  Terminal terminal(options.quiet);
  const Expected expected = read_expected(folder / "expected.safetensors");
  options.engine.mtp = expected.mtp;
  options.engine.progress = terminal.progress();
  const std::unique_ptr<EngineCore> core = EngineCore::load(*source, options.engine, options.chunk);
  terminal.clear_progress();
  terminal.line("on " + core->backend());
  if (expected.vocab != core->info().vocab_size)
    fail("{}: logits have {} columns, the model's vocabulary has {} tokens", (folder / "expected.safetensors").string(),
         expected.vocab, core->info().vocab_size);
  const Bars bars = bars_for(core->dtype(), options.engine.activations == "int8", depth_of(core->info()));

  std::vector<std::vector<int32_t>> prompts;
  size_t steps = 0;
  for (const ExpectedCase& one : expected.cases) {
    prompts.push_back(one.input_ids);
    steps = std::max(steps, one.greedy.size());
  }
  const std::vector<std::vector<int32_t>> greedy = greedy_tokens(*core, prompts, int32_t(steps));
  bool pass = true;
  Ties ties(*source, options, *core);
  for (size_t i = 0; i < expected.cases.size(); ++i)
    pass &= verify_case(*core, expected.cases[i], greedy[i], bars, ties);
  if (!expected.ignored.empty()) std::cout << fmt::format("note: not compared: {}\n", join(expected.ignored, ", "));
  return pass ? done : failed;
}

constexpr const char* footer =
    R"(DIR holds a checkpoint and expected.safetensors with, for every K, input_ids.K, logits.K, greedy.K (the greedy
continuation) and greedy_gap.K (distance between the two best logits at that step). One line for every K; exit code 1
if any fails. mtp_logits.K, where recorded, are those of the module for multi-token prediction. Greedy tokens count up to the first step whose gap is under twice the allowed error.

Examples:
  medley verify models/demo-jamba
  medley verify tests/golden/deepseek_v3 --chunk 3 --reproducible)";

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("verify", "Compare logits and greedy tokens with those recorded beside a model");
  auto options = std::make_shared<VerifyOptions>();
  options->engine.dtype = "f32";
  command->add_option("DIR", options->folder, "Folder of the checkpoint (or a GGUF file) and its expected.safetensors")
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
