// The third stage of encoding: a word to token ids (tokenizer.json's "model").
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/long_merge.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace medley {

// What one encoding at a time may write: buffers that keep their memory, and words seen before.
struct ModelScratch {
  LongMerge long_merge;
  std::vector<int32_t> ids;
  struct Path {
    double score;
    uint32_t begin;  // of its last token, whose id is
    int32_t id;
  };
  std::vector<Path> paths;
  std::vector<uint32_t> piece_ends;
  WordCache words;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `word` (valid UTF-8; raw bytes when the model was made with `byte_words`).
  virtual void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// `allow_byte_words`: the words come out of a ByteLevel step, so the model may take them as raw bytes; *byte_words says
// whether it does. Throws Error naming `where` for a type or an option that is not supported.
std::unique_ptr<TokenModel> make_model(const nlohmann::json& json, const std::string& where, bool allow_byte_words,
                                       bool* byte_words);

}  // namespace medley
