// Options that several subcommands take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "medley/engine.h"

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace medley::cli {

// The validator without its description, which --help would print beside the option's type.
CLI::Validator quiet(const CLI::Validator& validator);

CLI::Option* add_chunk_option(CLI::App& command, int64_t& chunk);
CLI::Option* add_model_option(CLI::App& command, std::string& model);

// --backend, --dtype, --activations, --threads, --reproducible, --kernels. What they set is in `options` when the
// command line is parsed.
void add_compute_options(CLI::App& command, EngineOptions& options);

CLI::Option* add_size_option(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& help);
CLI::Option* add_ids_option(CLI::App& command, std::vector<int32_t>& ids, const std::string& help);

}  // namespace medley::cli
