#include "base/json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace medley {

namespace {

// Bare Infinity, -Infinity and NaN outside of strings, as objects.
std::string quote_python_floats(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\') {
      out += text.substr(i, 2);
      i += 2;
      continue;
    }
    if (text[i] == '"') in_string = !in_string;
    bool replaced = false;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (in_string || text.substr(i, word.size()) != word) continue;
      out += fmt::format(R"({{"__float__": "{}"}})", word);
      i += word.size();
      replaced = true;
      break;
    }
    if (!replaced) out += text[i++];
  }
  return out;
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& origin, JsonFloats floats) {
  if (floats == JsonFloats::python) return parse_json(quote_python_floats(text), origin);
  constexpr int max_depth = 64;  // the published files nest about 8 deep; a stack must not follow a hostile one
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using event_t = nlohmann::json::parse_event_t;
    if (depth > max_depth) fail("{}: JSON nested deeper than {}", origin, max_depth);
    if (event == event_t::object_start) keys.emplace_back();
    if (event == event_t::object_end) keys.pop_back();
    if (event == event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      fail("{}: the key \"{}\" appears twice in one object", origin, parsed.get<std::string>());
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::parse_error& error) {
    fail("{}: not valid JSON at byte {}: {}", origin, error.byte, error.what());
  } catch (const nlohmann::json::exception& error) {  // a number that no double holds
    fail("{}: not valid JSON: {}", origin, error.what());
  }
}

nlohmann::json read_json(const std::filesystem::path& path, JsonFloats floats) {
  return parse_json(read_text(path), path.string(), floats);
}

std::string read_text(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > longest_text)
    fail("{}: {} bytes are too many for a file of text; at most {} are read", path.string(), file.bytes().size(),
         longest_text);
  std::string text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  file.check_intact();
  return text;
}

}  // namespace medley
