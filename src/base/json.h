// JSON files with errors that say which file and where. Parsed values are nlohmann::json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace medley {

// Throws Error "FILE: not valid JSON at byte N: ...", also for nesting deeper than 64 and for a key given twice.
// Python's json writes infinities and NaN as bare words, which JSON has not; with `python` they are read as the objects
// {"__float__": "Infinity"} that transformers 5 writes instead.
enum class JsonFloats : uint8_t { strict, python };
nlohmann::json read_json(const std::filesystem::path& path, JsonFloats floats = JsonFloats::strict);
nlohmann::json parse_json(std::string_view text, const std::string& origin, JsonFloats floats = JsonFloats::strict);

// The whole file as bytes, if it has not more than longest_text; throws Error naming the path. The largest published
// tokenizer.json has 34 MB.
constexpr size_t longest_text = 256u << 20;
std::string read_text(const std::filesystem::path& path);

}  // namespace medley
