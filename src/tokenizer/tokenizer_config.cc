#include "tokenizer/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace medley {
namespace {

constexpr const char* roles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                 "pad_token", "cls_token", "mask_token"};

// A token is its content, or an object with the content and flags that tokenizer.json repeats.
void read_roles(const nlohmann::json& json, const std::string& file, std::map<std::string, std::string>& out) {
  for (const char* role : roles) {
    const auto it = json.find(role);
    if (it == json.end() || it->is_null()) continue;
    const auto& content = it->is_object() && it->contains("content") ? it->at("content") : *it;
    if (!content.is_string()) fail("{}: \"{}\" is {}, not a token", file, role, it->dump());
    out.emplace(role, content.get<std::string>());
  }
}

std::optional<bool> flag(const nlohmann::json& json, const std::string& file, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return std::nullopt;
  if (!it->is_boolean()) fail("{}: \"{}\" is {}, not true or false", file, key, it->dump());
  return it->get<bool>();
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  TokenizerConfig config;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const auto json = read_json(path);
    if (!json.is_object()) fail("{}: expected an object, found {}", path.string(), json.type_name());
    read_roles(json, path.string(), config.special_tokens);
    if (std::string_view(name) != "tokenizer_config.json") continue;
    config.add_bos_token = flag(json, path.string(), "add_bos_token");
    config.legacy = flag(json, path.string(), "legacy").value_or(false);
    config.add_eos_token = flag(json, path.string(), "add_eos_token");
  }
  return config;
}

}  // namespace medley
