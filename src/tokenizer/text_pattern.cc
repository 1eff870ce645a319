#include "tokenizer/text_pattern.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {

Regex text_pattern(const nlohmann::json& json, const std::string& where) {
  if (json.is_object() && json.size() == 1 && json.begin()->is_string()) {
    const auto& text = json.begin()->get_ref<const std::string&>();
    if (json.begin().key() == "Regex") return Regex(text, where);
    if (json.begin().key() == "String") return Regex::literal(text, where);
  }
  fail("{}: expected a pattern, {{\"String\": ...}} or {{\"Regex\": ...}}, found {}", where, json.dump());
}

}  // namespace medley
