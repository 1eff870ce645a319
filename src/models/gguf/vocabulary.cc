#include "models/gguf/vocabulary.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace medley {
namespace {

std::optional<int32_t> token_id(const GgufFile& file, const char* key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::nullopt;
  const int64_t id = value->integer();
  // Some files say "none" as all ones.
  return id >= 0 && id < 1 << 24 ? std::optional(int32_t(id)) : std::nullopt;
}

std::optional<bool> flag(const GgufFile& file, const char* key) {
  const GgufValue* value = file.find(key);
  return value == nullptr ? std::nullopt : std::optional(value->boolean());
}

std::string text(const GgufFile& file, const char* key) {
  const GgufValue* value = file.find(key);
  return value == nullptr ? "" : std::string(value->string());
}

std::vector<GgufTokenType> read_types(const GgufFile& file) {
  std::vector<GgufTokenType> types;
  const GgufValue* value = file.find("tokenizer.ggml.token_type");
  if (value == nullptr) return types;
  for (const int64_t type : value->integers()) {
    if (type < 1 || type > 6) fail("{}: tokenizer.ggml.token_type holds {}, want 1 to 6", file.path(), type);
    types.push_back(GgufTokenType(type));
  }
  return types;
}

constexpr std::array<std::string_view, 10> turn_ends{"<|im_end|>",    "<|eot_id|>",     "<|eom_id|>", "<|end|>",
                                                     "<end_of_turn>", "<|endoftext|>",  "<|return|>", "<|call|>",
                                                     "<EOT>",         "<|end_of_text|>"};

}  // namespace

std::optional<GgufVocabulary> read_gguf_vocabulary(const GgufFile& file) {
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return std::nullopt;
  GgufVocabulary vocabulary;
  vocabulary.where = file.path();
  vocabulary.model = text(file, "tokenizer.ggml.model");
  vocabulary.pre = text(file, "tokenizer.ggml.pre");
  vocabulary.tokens = tokens->strings();
  vocabulary.types = read_types(file);
  if (const GgufValue* scores = file.find("tokenizer.ggml.scores"))
    for (const double score : scores->numbers()) vocabulary.scores.push_back(float(score));
  if (const GgufValue* merges = file.find("tokenizer.ggml.merges")) vocabulary.merges = merges->strings();
  vocabulary.bos = token_id(file, "tokenizer.ggml.bos_token_id");
  vocabulary.eos = token_id(file, "tokenizer.ggml.eos_token_id");
  vocabulary.unknown = token_id(file, "tokenizer.ggml.unknown_token_id");
  vocabulary.padding = token_id(file, "tokenizer.ggml.padding_token_id");
  vocabulary.add_bos = flag(file, "tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = flag(file, "tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix = flag(file, "tokenizer.ggml.add_space_prefix");
  return vocabulary;
}

std::vector<int32_t> read_gguf_end_tokens(const GgufFile& file) {
  std::vector<int32_t> ids;
  const auto add = [&](int32_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  for (const char* role : {"eos", "eot", "eom"})
    if (const auto id = token_id(file, fmt::format("tokenizer.ggml.{}_token_id", role).c_str())) add(*id);
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return ids;
  const std::vector<std::string_view> all = tokens->strings();
  const std::vector<GgufTokenType> types = read_types(file);
  const auto is_control = [&](size_t id) { return id < types.size() && types[id] == GgufTokenType::control; };
  const auto has = [&](std::string_view name) {
    for (size_t id = 0; id < all.size(); ++id)
      if (is_control(id) && all[id] == name) return true;
    return false;
  };
  // gpt-oss ends each part of an answer with <|end|>, and the answer with <|return|> or <|call|>.
  const bool parts = has("<|return|>") && has("<|call|>");
  for (size_t id = 0; id < all.size(); ++id) {
    if (!is_control(id) || std::find(turn_ends.begin(), turn_ends.end(), all[id]) == turn_ends.end()) continue;
    if (!(parts && all[id] == "<|end|>")) add(int32_t(id));
  }
  return ids;
}

}  // namespace medley
