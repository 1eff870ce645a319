// medley run: text (or ids) in, text out as it comes.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/generate.h"
#include "cli/run_options.h"
#include "cli/terminal.h"

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

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::none: return "none";
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::cancelled: return "cancelled";
    case Finish::error: return "error";
  }
  return "?";
}

std::string to_json(const Generated& result) {
  const nlohmann::ordered_json json = {{"text", result.text},
                                       {"ids", result.ids},
                                       {"finish", name_of(result.finish)},
                                       {"usage",
                                        {{"prompt_tokens", result.usage.prompt_tokens},
                                         {"generated_tokens", result.usage.generated_tokens},
                                         {"seconds_to_first_token", result.usage.seconds_to_first_token},
                                         {"seconds", result.usage.seconds}}}};
  return json.dump();
}

int run_once(const RunOptions& options, Engine& engine, Terminal& terminal, const std::string& prompt) {
  // Ids stream too; a JSON object is complete or not there.
  const char* separator = "";
  const auto show = [&](const Event& event) {
    if (options.format == OutputFormat::text) std::cout << event.text << std::flush;
    if (options.format != OutputFormat::ids) return;
    for (const Token& token : event.tokens) {
      std::cout << separator << token.id << std::flush;
      separator = ",";
    }
  };
  const Generated result = generate(engine, make_request(options, prompt, engine), !options.max_tokens, show);
  if (options.format == OutputFormat::json) std::cout << to_json(result);
  std::cout << "\n" << std::flush;
  terminal.line(figures(result.usage, engine));
  return result.interrupted ? interrupted : done;
}

int run(RunOptions options) {
  options.check();
  std::string prompt;
  if (options.ids.empty() && !options.interactive) prompt = prompt_text(options);
  Terminal terminal(options.quiet);
  options.engine.progress = terminal.progress();
  const std::unique_ptr<Engine> engine = Engine::load(options.model, options.engine);
  terminal.clear_progress();
  if (options.format == OutputFormat::text &&
      !std::filesystem::exists(std::filesystem::path(options.model) / "tokenizer.json"))
    fail("{} has no tokenizer.json, so its tokens have no text; use --ids and --format ids", options.model);
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
