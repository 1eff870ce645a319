// Options that several subcommands take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "medley/engine.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace medley::cli {

CLI::Option* add_model_option(CLI::App& command, std::string& model);

// --dtype, --threads, --reproducible, --kernels. What they set is in `options` when the command line is parsed.
void add_compute_options(CLI::App& command, EngineOptions& options);

CLI::Option* add_size_option(CLI::App& command, const std::string& name, uint64_t& bytes, const std::string& help);
CLI::Option* add_ids_option(CLI::App& command, std::vector<int32_t>& ids, const std::string& help);

}  // namespace medley::cli
