// From a config.json to a model.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "models/model.h"

namespace medley {

// The family whose model_type the config names; unknown types are refused with the list of the known ones.
std::unique_ptr<Model> make_model(const nlohmann::json& config, const std::string& origin);

// config.json of a folder, the file itself, or what a GGUF file's metadata comes to (model_source.h).
nlohmann::json read_config(const std::filesystem::path& model);

// The model_types medley knows.
std::vector<std::string> known_model_types();

}  // namespace medley
