// Text to token ids and back, as the files beside a model's weights say (tokenizer.json, tokenizer_config.json).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

struct TokenizerParts;
class DecodeRun;
struct GgufVocabulary;

// A handle on an immutable tokenizer: cheap to copy, safe to use from several threads.
class Tokenizer {
 public:
  // Reads FOLDER/tokenizer.json, or tokenizer.model (sentencepiece) where there is none, and tokenizer_config.json and
  // special_tokens_map.json where they exist. Throws Error naming file, component and field for what is missing, wrong
  // or not supported.
  static Tokenizer load(const std::filesystem::path& folder);
  static bool exists(const std::filesystem::path& folder);

  // `add_special_tokens`: put BOS/EOS where the files say. Rendered chat templates are encoded without, as transformers
  // does: a template writes the tokens it wants itself. Special tokens written in the text are recognised either way.
  // Bytes that are not UTF-8 are read as U+FFFD.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // Ids without a token are left out, and with `skip_special` special tokens too.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  // As the vocabulary spells it ("Ġthe"); nothing for an id without a token.
  std::optional<std::string_view> token(int32_t id) const;
  bool is_special(int32_t id) const;

  int32_t end_id() const;       // one past the highest id: at most the model's vocab_size
  int64_t token_count() const;  // tokens of the vocabulary and added ones

  // What tokenizer_config.json calls bos_token and eos_token, if the vocabulary has it.
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  // "bos_token" -> "<s>", ...: the variables a chat template sees.
  const std::map<std::string, std::string>& special_tokens() const;
  // Whether encode(..., true) puts the BOS token in front.
  bool adds_bos() const;

 private:
  friend class StreamDecoder;
  friend Tokenizer make_gguf_tokenizer(const GgufVocabulary& vocabulary);
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace medley
