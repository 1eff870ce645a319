#include "tokenizer/json_fields.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {

JsonFields::JsonFields(const nlohmann::json& object, std::string where) : json_(object), where_(std::move(where)) {
  if (!object.is_object()) fail("{}: expected an object, found {}", where_, object.type_name());
}

bool JsonFields::has(const char* key) const {
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

const nlohmann::json* JsonFields::find(const char* key) {
  seen_.insert(key);
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

const nlohmann::json& JsonFields::any(const char* key) {
  const auto* value = find(key);
  if (!value) fail("{}: the field \"{}\" is missing", where_, key);
  return *value;
}

const nlohmann::json& JsonFields::list(const char* key) {
  const auto& value = any(key);
  if (!value.is_array()) refuse(key, fmt::format("must be a list, not {}", value.type_name()));
  return value;
}

const nlohmann::json& JsonFields::object(const char* key) {
  const auto& value = any(key);
  if (!value.is_object()) refuse(key, fmt::format("must be an object, not {}", value.type_name()));
  return value;
}

std::string JsonFields::text(const char* key) {
  const auto& value = any(key);
  if (!value.is_string()) refuse(key, fmt::format("must be a string, not {}", value.type_name()));
  return value.get<std::string>();
}

std::string JsonFields::text(const char* key, std::string fallback) {
  return find(key) ? text(key) : std::move(fallback);
}

bool JsonFields::flag(const char* key, bool fallback) {
  const auto* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) refuse(key, fmt::format("must be true or false, not {}", value->dump()));
  return value->get<bool>();
}

int64_t JsonFields::integer(const char* key, int64_t fallback) {
  const auto* value = find(key);
  if (!value) return fallback;
  if (!value->is_number_integer()) refuse(key, fmt::format("must be an integer, not {}", value->dump()));
  return value->get<int64_t>();
}

void JsonFields::ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) seen_.insert(key);
}

void JsonFields::done() const {
  for (const auto& [key, value] : json_.items())
    if (!seen_.contains(key)) refuse(key.c_str(), "is not known here (this version would ignore what it changes)");
}

void JsonFields::refuse(const char* key, const std::string& why) const {
  fail("{}: the field \"{}\" {}", where_, key, why);
}

}  // namespace medley
