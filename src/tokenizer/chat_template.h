// Messages to the text of a prompt, by the template beside a model's weights.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace medley {

class Tokenizer;

struct ChatMessage {
  std::string role, content;
};

class ChatTemplate {
 public:
  // FOLDER/chat_template.jinja (its other templates: FOLDER/additional_chat_templates/NAME.jinja), or chat_template of
  // tokenizer_config.json: a string, or a list of named ones. Nothing if the folder has none. Throws Error
  // "FILE line N: ..." for a template that does not parse. The tokenizer gives bos_token and its kind.
  static std::optional<ChatTemplate> load(const std::filesystem::path& folder, const Tokenizer& tokenizer);
  // From a source held elsewhere (a GGUF file, an option of the command).
  ChatTemplate(std::string_view source, std::string name, const Tokenizer& tokenizer);

  struct Result {
    bool ok = false;
    std::string text;   // encode with add_special_tokens = false: the template wrote BOS itself if the model wants it
    std::string error;  // the request's fault more often than not: raise_exception("roles must alternate ...")
  };
  // `messages`: a list of objects with role and content, in the order of their keys. `extra`: an object of more
  // variables (tools, documents, enable_thinking, ...), or null. Templates named "tool_use" are taken when there are
  // tools.
  Result apply(const nlohmann::ordered_json& messages, bool add_generation_prompt,
               const nlohmann::ordered_json& extra) const;
  Result apply(const std::vector<ChatMessage>& messages, bool add_generation_prompt) const;

  std::vector<std::string> names() const;                    // "default", "tool_use", ...
  const std::string& source(const std::string& name) const;  // throws Error if there is no such template

  // For strftime_now; tests set it.
  void set_clock(std::function<int64_t()> seconds_since_1970);

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<Parts> parts_;
};

}  // namespace medley
