// A "pattern" field of tokenizer.json: {"String": "..."} or {"Regex": "..."}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tokenizer/regex.h"

namespace medley {

Regex text_pattern(const nlohmann::json& json, const std::string& where);

}  // namespace medley
