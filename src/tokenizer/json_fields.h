// One component of tokenizer.json (or another loaded object), read field by field: a field of the wrong type, a missing
// one and one that nobody asked for are errors that name file, component and field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

class JsonFields {
 public:
  // `where` names the object in messages: "models/x/tokenizer.json: pre_tokenizer".
  JsonFields(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* key) const;  // present and not null

  const nlohmann::json& any(const char* key);  // must be present and not null
  const nlohmann::json& list(const char* key);
  const nlohmann::json& object(const char* key);
  std::string text(const char* key);
  std::string text(const char* key, std::string fallback);  // also when null
  bool flag(const char* key, bool fallback);
  int64_t integer(const char* key, int64_t fallback);

  void ignore(std::initializer_list<const char*> keys);  // fields known to have no part in the result
  // Throws Error for the first field that was not read: something this version does not know would change the result.
  void done() const;

  [[noreturn]] void refuse(const char* key, const std::string& why) const;

 private:
  const nlohmann::json* find(const char* key);

  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace medley
