// The command: finds the subcommand, runs it, turns what went wrong into a message and an exit code.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "cli/interrupt.h"

namespace medley::cli {
namespace {

constexpr const char* examples =
    R"(Examples:
  medley run models/demo-jamba "Once upon a time" -n 100
  medley run models/demo-deepseek "What is the capital of France?" --chat
  medley run models/demo-jamba -i
  medley inspect configs/deepseek-v3.json --memory 80G

MODEL is a folder in the layout of a Hugging Face checkpoint: config.json, model.safetensors (or shards with their
index), and for text tokenizer.json or tokenizer.model; or a GGUF file.
Exit codes: 0 done, 1 the work failed, 2 wrong usage.
medley COMMAND --help shows a command's options and examples.)";

int complain(const std::string& what, int code) {
  std::cout.flush();
  std::cerr << "medley: " << what << "\n";
  return code;
}

int run(int argc, char** argv) {
  CLI::App app("Runs language models: MLA, state-space and mixture-of-experts models, next to plain ones.", "medley");
  app.set_version_flag("--version", std::string("medley ") + MEDLEY_VERSION, "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  app.footer(examples);
  app.failure_message([](const CLI::App* command, const CLI::Error& error) {
    std::string name = "medley";
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      name += " " + command->get_name();
    }
    return fmt::format("medley: {}\n{} --help shows what it takes\n", error.what(), name);
  });
  Action action;
  add_run(app, action);
  add_logits(app, action);
  add_inspect(app, action);
  add_tokenize(app, action);
  add_verify(app, action);
  add_bench(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help and --version come this way too, with code 0
    return app.exit(error) == 0 ? done : wrong_usage;
  }
  const int code = action();
  if (!std::cout.flush()) return complain("stdout cannot be written", failed);
  return code;
}

}  // namespace
}  // namespace medley::cli

int main(int argc, char** argv) {
  using namespace medley::cli;
  try {
    watch_interrupts();
    return run(argc, argv);
  } catch (const UsageError& error) {
    return complain(error.what(), wrong_usage);
  } catch (const std::exception& error) {
    return complain(error.what(), failed);
  }
}
