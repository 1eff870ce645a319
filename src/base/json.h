// JSON files with errors that say which file and where. Parsed values are nlohmann::json.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace medley {

// Throws Error "FILE: not valid JSON at byte N: ...", also for nesting deeper than 64 and for a key given twice.
nlohmann::json read_json(const std::filesystem::path& path);
nlohmann::json parse_json(std::string_view text, const std::string& origin);

// The whole file as bytes; throws Error naming the path.
std::string read_text(const std::filesystem::path& path);

}  // namespace medley
