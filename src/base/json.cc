#include "base/json.h"

#include <nlohmann/json.hpp>
#include <utility>
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

// Builds the value that nlohmann::json::parse would, and refuses deep nesting and keys given twice on the way; its own
// callback interface does that at twice the time, which counts with vocabularies of 30 MB.
class Builder {
 public:
  using Json = nlohmann::json;
  explicit Builder(const std::string& origin) : origin_(origin) {}
  Json take() { return std::move(root_); }

  // What sax_parse calls.
  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // not of JSON text
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    const auto [at, inserted] = open_.back()->get_ref<Json::object_t&>().try_emplace(name);
    if (!inserted) fail("{}: the key \"{}\" appears twice in one object", origin_, name);
    value_ = &at->second;
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const Json::exception& error) {
    fail("{}: not valid JSON at byte {}: {}", origin_, byte, error.what());
  }

 private:
  Json* place() {
    if (open_.empty()) return &root_;
    if (open_.back()->is_object()) return value_;
    return &open_.back()->get_ref<Json::array_t&>().emplace_back();
  }
  bool put(Json value) {
    *place() = std::move(value);
    return true;
  }
  bool open(Json value) {
    constexpr size_t max_depth = 64;  // the published files nest about 8 deep; a stack must not follow a hostile one
    if (open_.size() >= max_depth) fail("{}: JSON nested deeper than {}", origin_, max_depth);
    Json* at = place();
    *at = std::move(value);
    open_.push_back(at);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& origin_;
  Json root_;
  std::vector<Json*> open_;  // stable: only the last one grows
  Json* value_ = nullptr;    // of the last key
};

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& origin, JsonFloats floats) {
  if (floats == JsonFloats::python) return parse_json(quote_python_floats(text), origin);
  Builder builder(origin);
  nlohmann::json::sax_parse(text, &builder);
  return builder.take();
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
