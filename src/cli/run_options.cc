#include "cli/run_options.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <map>

#include "cli/command.h"
#include "cli/options.h"

namespace medley::cli {
namespace {

void add_prompt_options(CLI::App& command, RunOptions& options) {
  add_model_option(command, options.model);
  command.add_option("PROMPT", options.prompt, "Text to continue; \"-\", or nothing with a pipe: read from stdin")
      ->type_name("");
  add_ids_option(command, options.ids, "Token ids instead of text");
  command.add_flag("--chat", options.chat, "PROMPT is a question: apply the model's chat template");
  command.add_flag("-i,--interactive", options.interactive, "Chat line by line, keeping the conversation");
  command.add_option("--system", options.system, "System message, with --chat or -i")->type_name("TEXT");
}

void add_sampling_options(CLI::App& command, RunOptions& options) {
  const auto add = [&](const char* name, auto& value, const char* help, const char* type) {
    return command.add_option(name, value, help)->type_name(type)->group("Sampling");
  };
  add("-n,--max-tokens", options.max_tokens,
      "Tokens to generate at most; [128, with -i 512, or what the model has room for]", "N");
  add("--temperature", options.temperature, "0: the best token each time (greedy)", "T");
  add("--top-k", options.top_k, "Choose among the K best tokens; 0: all", "K");
  add("--top-p", options.top_p, "Choose among the best tokens that have probability P together", "P");
  add("--min-p", options.min_p, "Choose among tokens with at least P times the best one's probability", "P");
  add("--repetition-penalty", options.repetition_penalty, "Above 1: tokens that are there already get less", "R");
  add("--presence-penalty", options.presence_penalty, "Taken from the logits of tokens written already", "P");
  add("--frequency-penalty", options.frequency_penalty, "The same, for each time they were written", "P");
  add("--seed", options.seed, "Of the random numbers: the same seed gives the same text", "N")
      ->check(quiet(CLI::NonNegativeNumber))
      ->capture_default_str();
  add("--samples", options.samples, "Texts to write, each with random numbers of its own; the first is what 1 gives",
      "N")
      ->check(quiet(CLI::Range(1, 1024)))
      ->capture_default_str();
  add("--stop", options.stop, "End before this text; may be given several times", "TEXT")
      ->allow_extra_args(false)
      ->take_all();
  command.add_flag("--ignore-eos", options.ignore_eos, "Go on where the model would end")->group("Sampling");
}

void add_output_options(CLI::App& command, RunOptions& options) {
  const std::map<std::string, OutputFormat> formats{
      {"text", OutputFormat::text}, {"ids", OutputFormat::ids}, {"json", OutputFormat::json}};
  command
      .add_option(
          "--format", options.format,
          "What goes to stdout: the text, the generated ids (comma separated), or one JSON object a sample [text]")
      ->transform(CLI::CheckedTransformer(formats).description(""))
      ->type_name("text|ids|json");
  command.add_flag("--quiet", options.quiet, "Nothing on stderr but errors");
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& options) {
  add_prompt_options(command, options);
  add_output_options(command, options);
  add_sampling_options(command, options);
  add_compute_options(command, options.engine);
  command
      .add_option("--max-batched-tokens", options.engine.max_batched_tokens,
                  "Tokens of the prompt to compute in a step")
      ->check(quiet(CLI::PositiveNumber))
      ->type_name("N")
      ->capture_default_str();
  add_size_option(command, "--memory", options.engine.memory, "Memory for the cache; what is useful by default");
}

SamplingParams RunOptions::sampling(SamplingParams params) const {
  const auto set = [](auto& value, const auto& given) {
    if (given) value = *given;
  };
  set(params.temperature, temperature);
  set(params.top_k, top_k);
  set(params.top_p, top_p);
  set(params.min_p, min_p);
  set(params.repetition_penalty, repetition_penalty);
  set(params.presence_penalty, presence_penalty);
  set(params.frequency_penalty, frequency_penalty);
  params.max_tokens = max_tokens.value_or(interactive ? 512 : params.max_tokens);
  params.seed = seed;
  params.n = samples;
  params.stop = stop;
  params.ignore_eos = ignore_eos;
  return params;
}

void RunOptions::check() const {
  const std::string problem = sampling({}).problem(std::numeric_limits<int32_t>::max());
  if (!problem.empty()) throw UsageError(problem);
  if (max_tokens == 0) throw UsageError("-n is 0, must be 1 or more");
  if (!ids.empty() && (prompt || chat || interactive))
    throw UsageError("--ids is the prompt: it goes with neither PROMPT nor --chat nor -i");
  if (interactive && format != OutputFormat::text) throw UsageError("-i chats in text: it does not go with --format");
  if (interactive && samples != 1) throw UsageError("-i has one answer a line: it does not go with --samples");
  if (interactive && prompt == "-") throw UsageError("-i reads its lines from stdin, so PROMPT cannot be \"-\"");
  if (!system.empty() && !chat && !interactive) throw UsageError("--system goes with --chat or -i");
}

}  // namespace medley::cli
