// tokenizer.json or tokenizer.model to TokenizerParts.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_parts.h"

namespace medley {
namespace {

// A token with a role is cut out of the text even if tokenizer.json does not list it as added.
void add_special_tokens(TokenizerParts& parts) {
  for (const auto& [role, content] : parts.config.special_tokens) {
    if (const auto id = parts.model->vocabulary().find(content))
      parts.added.add({.content = content, .id = *id, .special = true});
  }
}

std::optional<int32_t> id_of_role(const TokenizerParts& parts, const char* role) {
  const auto it = parts.config.special_tokens.find(role);
  return it == parts.config.special_tokens.end() ? std::nullopt : parts.id_of(it->second);
}

void apply_config(TokenizerParts& parts) {
  const TokenizerConfig& config = parts.config;
  parts.bos_id = id_of_role(parts, "bos_token");
  parts.eos_id = id_of_role(parts, "eos_token");
  if (!config.add_bos_token && !config.add_eos_token) return;
  parts.post_processor = {};
  if (config.add_bos_token.value_or(false) && parts.bos_id) parts.post_processor.prefix = {*parts.bos_id};
  if (config.add_eos_token.value_or(false) && parts.eos_id) parts.post_processor.suffix = {*parts.eos_id};
}

const nlohmann::json& member(const nlohmann::json& json, const char* key) {
  static const nlohmann::json null;
  const auto it = json.find(key);
  return it == json.end() ? null : *it;
}

void load_json(const std::filesystem::path& path, TokenizerParts& parts) {
  const nlohmann::json json = read_json(path);
  const std::string file = path.string() + ": ";
  JsonFields fields(json, path.string());
  const auto& pre_tokenizer = member(json, "pre_tokenizer");
  bool byte_words = false;
  parts.model =
      make_model(fields.object("model"), file + "model", PreTokenizer::ends_in_byte_level(pre_tokenizer), &byte_words);
  parts.normalizer = make_normalizer(member(json, "normalizer"), file + "normalizer");
  parts.pre_tokenizer = PreTokenizer::make(pre_tokenizer, file + "pre_tokenizer", byte_words);
  parts.post_processor = PostProcessor::make(member(json, "post_processor"), file + "post_processor");
  parts.decoder = Decoder::make(member(json, "decoder"), file + "decoder");
  parts.added.read(member(json, "added_tokens"), file + "added_tokens", parts.model->vocabulary());
  add_special_tokens(parts);
  parts.added.prepare(parts.normalizer.get());
  apply_config(parts);

  // Truncation and padding are defaults for training batches; an engine neither cuts nor pads a prompt.
  fields.ignore(
      {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"});
  fields.done();
}

}  // namespace

bool Tokenizer::exists(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "tokenizer.json") || std::filesystem::exists(folder / "tokenizer.model");
}

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  if (!exists(folder))
    fail(
        "{}: there is no tokenizer.json (nor tokenizer.model); a model folder needs it to turn text into tokens (token "
        "ids work without)",
        folder.string());
  auto parts = std::make_shared<TokenizerParts>();
  parts->config = read_tokenizer_config(folder);
  if (std::filesystem::exists(folder / "tokenizer.json")) {
    load_json(folder / "tokenizer.json", *parts);
  } else {
    const auto path = folder / "tokenizer.model";
    take_sentencepieces(read_sentencepieces(path), path.string(), *parts);
    apply_config(*parts);
  }
  return Tokenizer(std::move(parts));
}

}  // namespace medley
