// medley logits: the logits of every position of a prompt, as a file.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/prompt_logits.h"
#include "cli/terminal.h"
#include "weights/safetensors.h"

namespace medley::cli {
namespace {

struct LogitsOptions {
  std::string model, out;
  std::vector<int32_t> ids;
  int64_t chunk = 0;
  bool quiet = false;
  EngineOptions engine;
};

int logits(LogitsOptions options) {
  Terminal terminal(options.quiet);
  options.engine.progress = terminal.progress();
  const std::unique_ptr<EngineCore> core = EngineCore::load(options.model, options.engine, options.chunk);
  terminal.clear_progress();
  terminal.line("on " + core->backend());
  PromptLogits result = prompt_logits(*core, options.ids);
  const TensorView view(result.values.data(), DType::f32, {result.tokens, result.vocab});
  write_safetensors(options.out, {{"logits", view}});
  terminal.line(fmt::format("wrote logits {} to {}", view.describe(), options.out));
  return done;
}

constexpr const char* examples = R"(Examples:
  medley logits models/demo-jamba --ids 0,15,27,300 --out logits.safetensors
  medley logits MODEL --ids 1,2,3,4,5,6,7 --chunk 3 --reproducible --out chunked.safetensors)";

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("logits", "Write the logits of every position of a prompt to a safetensors file");
  auto options = std::make_shared<LogitsOptions>();
  options->engine.dtype = "f32";
  add_model_option(*command, options->model);
  add_ids_option(*command, options->ids, "The prompt's token ids")->required();
  command->add_option("--out", options->out, "File to write: f32 \"logits\" [tokens, vocabulary]")
      ->required()
      ->type_name("FILE");
  add_chunk_option(*command, options->chunk);
  add_compute_options(*command, options->engine);
  add_size_option(*command, "--memory", options->engine.memory, "Memory for the cache; what is useful by default");
  command->add_flag("--quiet", options->quiet, "Nothing on stderr but errors");
  command->footer(examples);
  command->callback([options, &action] { action = [options] { return logits(*options); }; });
}

}  // namespace medley::cli
