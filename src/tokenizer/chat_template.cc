#include "tokenizer/chat_template.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace medley {

struct ChatTemplate::Parts {
  struct Named {
    std::string name, source;
    jinja::Template parsed;
  };
  std::vector<Named> templates;
  std::map<std::string, jinja::Value> special_tokens;
  jinja::Options options;

  void add(std::string name, std::string source, const std::string& origin) {
    jinja::Template parsed(source, origin);
    templates.push_back({std::move(name), std::move(source), std::move(parsed)});
  }

  const Named* find(std::string_view name) const {
    const auto it = std::find_if(templates.begin(), templates.end(), [&](const Named& t) { return t.name == name; });
    return it == templates.end() ? nullptr : &*it;
  }

  // As transformers chooses: "tool_use" if there are tools and it exists, else "default", else the only one.
  const Named* choose(bool tools) const {
    const Named* chosen = tools ? find("tool_use") : nullptr;
    if (!chosen) chosen = find("default");
    return chosen || templates.size() != 1 ? chosen : &templates[0];
  }
};

namespace {

jinja::Value value_of(const nlohmann::ordered_json& json, int depth = 0) {
  if (depth >= jinja::max_value_depth) jinja::raise("JSON nested deeper than {}", jinja::max_value_depth);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return jinja::Value(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return jinja::Value(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      return number > uint64_t(INT64_MAX) ? jinja::Value(double(number)) : jinja::Value(int64_t(number));
    }
    case nlohmann::ordered_json::value_t::number_float: return jinja::Value(json.get<double>());
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      return jinja::Value(unicode::is_valid(text) ? text : unicode::repaired(text));
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const auto& item : json) items.push_back(value_of(item, depth + 1));
      return jinja::make_list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, item] : json.items()) dict.set(jinja::Value(key), value_of(item, depth + 1));
      return jinja::make_dict(std::move(dict));
    }
    default: return {};
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string name, const Tokenizer& tokenizer)
    : parts_(std::make_shared<Parts>()) {
  parts_->add("default", std::string(source), name);
  for (const auto& [role, content] : tokenizer.special_tokens())
    parts_->special_tokens.emplace(role, jinja::Value(content));
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  auto parts = std::make_shared<Parts>();
  for (const auto& [role, content] : tokenizer.special_tokens())
    parts->special_tokens.emplace(role, jinja::Value(content));
  const auto file = folder / "chat_template.jinja";
  if (std::filesystem::exists(file)) parts->add("default", read_text(file), file.string());
  const auto others = folder / "additional_chat_templates";
  if (std::filesystem::is_directory(others)) {
    for (const auto& entry : std::filesystem::directory_iterator(others))
      if (entry.path().extension() == ".jinja")
        parts->add(entry.path().stem().string(), read_text(entry.path()), entry.path().string());
  }
  const auto config = folder / "tokenizer_config.json";
  if (parts->templates.empty() && std::filesystem::exists(config)) {
    const auto json = read_json(config);
    const std::string origin = config.string() + ": chat_template";
    const auto it = json.find("chat_template");
    if (it != json.end() && it->is_string()) {
      parts->add("default", it->get<std::string>(), origin);
    } else if (it != json.end() && it->is_array()) {
      for (const auto& item : *it) {
        if (!item.is_object() || !item.contains("name") || !item["name"].is_string() || !item.contains("template") ||
            !item["template"].is_string())
          fail("{}: expected a list of {{\"name\": ..., \"template\": ...}}", origin);
        const auto name = item["name"].get<std::string>();
        parts->add(name, item["template"].get<std::string>(), fmt::format("{}[{}]", origin, name));
      }
    } else if (it != json.end() && !it->is_null()) {
      fail("{}: expected a string or a list, found {}", origin, it->type_name());
    }
  }
  if (parts->templates.empty()) return std::nullopt;
  return ChatTemplate(std::move(parts));
}

ChatTemplate::Result ChatTemplate::apply(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                         const nlohmann::ordered_json& extra) const {
  Result result;
  try {
    std::map<std::string, jinja::Value> variables = parts_->special_tokens;
    variables["tools"] = variables["documents"] = jinja::Value();
    if (extra.is_object())
      for (const auto& [name, value] : extra.items()) variables[name] = value_of(value);
    variables["messages"] = value_of(messages);
    variables["add_generation_prompt"] = jinja::Value(add_generation_prompt);
    const Parts::Named* chosen = parts_->choose(!variables["tools"].is_none());
    if (!chosen) {
      result.error = "the model has several chat templates and none is named \"default\"";
      return result;
    }
    auto rendered = chosen->parsed.render(variables, parts_->options);
    result.ok = rendered.ok;
    result.text = std::move(rendered.text);
    result.error = std::move(rendered.error);
  } catch (const jinja::TemplateError& error) {  // values that no template can take
    result.error = error.what();
  }
  return result;
}

ChatTemplate::Result ChatTemplate::apply(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const {
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  return apply(list, add_generation_prompt, nullptr);
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& named : parts_->templates) names.push_back(named.name);
  return names;
}

const std::string& ChatTemplate::source(const std::string& name) const {
  const Parts::Named* found = parts_->find(name);
  if (!found) fail("there is no chat template named \"{}\"", name);
  return found->source;
}

void ChatTemplate::set_clock(std::function<int64_t()> seconds_since_1970) {
  parts_->options.now = [clock = std::move(seconds_since_1970)] { return std::time_t(clock()); };
}

}  // namespace medley
