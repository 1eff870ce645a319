// medley inspect: what a model is made of and what its cache costs, from config.json alone.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.h"
#include "cli/model_report.h"
#include "cli/options.h"
#include "engine/backend.h"

namespace medley::cli {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  uint64_t memory = uint64_t(16) << 30;
  int64_t request_tokens = 4096;
  std::string dtype = "bf16";
  std::string backend = "cpu";
};

int inspect(const InspectOptions& options) {
  ReportOptions how{.dtype = options.dtype == "f32" ? DType::f32 : DType::bf16,
                    .memory = options.memory,
                    .request_tokens = options.request_tokens};
  // A device's kernels can be named without one.
  how.device = options.backend == "cuda" ? Device::cuda : choose_device(options.backend);
  const ModelReport report = make_report(options.model, how);
  std::cout << (options.json ? to_json(report) : to_text(report));
  return done;
}

constexpr const char* examples = R"(Reads config.json only; no weights are needed.

Examples:
  medley inspect models/demo-jamba
  medley inspect configs/deepseek-v3.json --memory 80G
  medley inspect configs/llama-3-70b.json --json)";

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("inspect", "Show a model's layers, parameters and cache costs");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("MODEL", options->model, "Folder of a checkpoint, or a config.json")->required()->type_name("");
  command->add_flag("--json", options->json, "Print JSON");
  add_size_option(*command, "--memory", options->memory, "Cache to fit tokens and requests into [16G]");
  command->add_option("--request-tokens", options->request_tokens, "Length of the requests to fit")
      ->check(quiet(CLI::PositiveNumber))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Of the cache")
      ->check(quiet(CLI::IsMember({"f32", "bf16"})))
      ->type_name("f32|bf16")
      ->capture_default_str();
  command->add_option("--backend", options->backend, "Whose kernels to name")
      ->check(quiet(CLI::IsMember({"auto", "cpu", "cuda"})))
      ->type_name("auto|cpu|cuda")
      ->capture_default_str();
  command->footer(examples);
  command->callback([options, &action] { action = [options] { return inspect(*options); }; });
}

}  // namespace medley::cli
