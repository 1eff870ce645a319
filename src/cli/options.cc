#include "cli/options.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/text.h"

namespace medley::cli {

CLI::Validator quiet(const CLI::Validator& validator) {
  return validator.description("");
}

CLI::Option* add_chunk_option(CLI::App& command, int64_t& chunk) {
  return command.add_option("--chunk", chunk, "Tokens fed in one step, through scheduler and caches; 0: all at once")
      ->check(quiet(CLI::NonNegativeNumber))
      ->type_name("N")
      ->capture_default_str();
}

CLI::Option* add_model_option(CLI::App& command, std::string& model) {
  return command.add_option("MODEL", model, "Folder of the checkpoint, or a GGUF file")->required()->type_name("");
}

void add_compute_options(CLI::App& command, EngineOptions& options) {
  command.add_option("--backend", options.backend, "Where the model runs; auto: on a CUDA device when there is one")
      ->check(quiet(CLI::IsMember({"auto", "cpu", "cuda"})))
      ->type_name("auto|cpu|cuda")
      ->capture_default_str();
  command.add_option("--dtype", options.dtype, "Inputs of matrix products, and the cache")
      ->check(quiet(CLI::IsMember({"auto", "f32", "bf16"})))
      ->type_name("auto|f32|bf16")
      ->capture_default_str();
  command
      .add_option("--activations", options.activations,
                  "int8: what block-quantised weights (GGUF) multiply is quantised too: faster, less exact")
      ->check(quiet(CLI::IsMember({"auto", "int8"})))
      ->type_name("auto|int8")
      ->capture_default_str();
  command
      .add_option("--blocks", options.blocks,
                  "Block-quantised weights (GGUF). keep: in blocks; expand: as --dtype, two to eight times the memory; "
                  "auto: keep on the CPU, expand on a device")
      ->check(quiet(CLI::IsMember({"auto", "keep", "expand"})))
      ->type_name("auto|keep|expand")
      ->capture_default_str();
  command.add_option("--threads", options.threads, "Threads; 0: one per processor. They change no bit of the result")
      ->check(quiet(CLI::Range(0, 1024)))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--reproducible", options.reproducible,
                   "The same bits however a prompt is cut into chunks, also after a preemption");
  command.add_option("--kernels", options.kernels, "Highest level of kernels to use; the best there is by default")
      ->check(quiet(CLI::IsMember({"ref", "simd", "avx512", "cuda", "sm90"})))
      ->type_name("ref|simd|avx512, cuda|sm90");
  command.add_flag("!--no-graphs", options.graphs, "CUDA: launch every kernel of every step by itself");
}

CLI::Option* add_size_option(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& help) {
  const auto set = [&bytes, name](const std::string& text) {
    const std::optional<uint64_t> size = parse_bytes(text);
    if (!size || *size == 0)
      throw CLI::ValidationError(name, fmt::format("\"{}\" is not a size; 512M, 4G and 1.5GiB are", text));
    bytes = *size;
  };
  return command.add_option_function<std::string>(name, set, help)->type_name("SIZE");
}

CLI::Option* add_ids_option(CLI::App& command, std::vector<int32_t>& ids, const std::string& help) {
  const auto set = [&ids](const std::string& text) {
    const std::optional<std::vector<int32_t>> parsed = parse_ids(text);
    if (!parsed) throw CLI::ValidationError("--ids", fmt::format("\"{}\" is not a list of token ids like 1,2,3", text));
    ids = *parsed;
  };
  return command.add_option_function<std::string>("--ids", set, help)->type_name("1,2,3");
}

}  // namespace medley::cli
