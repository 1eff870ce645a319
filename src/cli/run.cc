// medley run: text (or ids) in, text out as it comes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "base/text.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/run_options.h"
#include "cli/show.h"
#include "cli/terminal.h"
#include "models/model_source.h"

namespace medley::cli {
namespace {

// All of stdin, without the line break that `echo` and editors put at the end.
std::string read_stdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string prompt_text(const RunOptions& options) {
  if (options.prompt && *options.prompt != "-") return *options.prompt;
  if (!options.prompt && isatty(STDIN_FILENO) == 1)
    throw UsageError("no prompt: give PROMPT, --ids or -i, or pipe text into stdin");
  return read_stdin();
}

GenerationRequest make_request(const RunOptions& options, const std::string& prompt, const Engine& engine) {
  GenerationRequest request;
  request.sampling = options.sampling(engine.default_sampling());
  request.prompt_ids = options.ids;
  if (options.chat) {
    if (!options.system.empty()) request.messages.push_back({"system", options.system});
    request.messages.push_back({"user", prompt});
  } else {
    request.prompt = prompt;
  }
  return request;
}

int run_once(const RunOptions& options, Engine& engine, Terminal& terminal, const std::string& prompt) {
  Show show(options.format, options.samples);
  const std::vector<Generated> results = generate(engine, make_request(options, prompt, engine), !options.max_tokens,
                                                  [&](const Event& event) { show.event(event); });
  if (options.format == OutputFormat::json) show.json(results);
  Usage usage = results[0].usage;
  for (size_t i = 1; i < results.size(); ++i) {
    usage.generated_tokens += results[i].usage.generated_tokens;
    usage.seconds = std::max(usage.seconds, results[i].usage.seconds);
  }
  terminal.line(figures(usage, engine));
  return results[0].interrupted ? interrupted : done;
}

int run(RunOptions options) {
  options.check();
  std::string prompt;
  if (options.ids.empty() && !options.interactive) prompt = prompt_text(options);
  Terminal terminal(options.quiet);
  options.engine.progress = terminal.progress();
  const std::unique_ptr<Engine> engine = Engine::load(options.model, options.engine);
  terminal.clear_progress();
  const std::unique_ptr<ModelSource> source = open_model(options.model);
  if (options.format == OutputFormat::text && !source->has_tokenizer())
    fail("{} has no {}, so its tokens have no text; use --ids and --format ids", options.model,
         source->tokenizer_place());
  if (options.interactive) return chat(options, *engine, terminal);
  return run_once(options, *engine, terminal, prompt);
}

constexpr const char* footer =
    R"(What is not given comes from the model's generation_config.json (temperature, top-k, top-p, min-p, repetition
penalty). stdout carries the generated text only; a progress bar and a line of figures go to stderr when that is a
terminal. Ctrl-C ends the text where it is (exit code 130).

Examples:
  medley run models/demo-jamba "Once upon a time" -n 100
  medley run models/demo-deepseek "What is the capital of France?" --chat --temperature 0
  medley run models/demo-jamba -i
  echo "The capital of France is" | medley run models/demo-jamba --stop . --quiet
  medley run models/demo-jamba "Once upon a time" --samples 3 --seed 1
  medley run MODEL --ids 1,2,3 -n 20 --temperature 0 --ignore-eos --format ids)";

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Generate text, streaming it to stdout");
  auto options = std::make_shared<RunOptions>();
  add_run_options(*command, *options);
  command->footer(footer);
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace medley::cli
