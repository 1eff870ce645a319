// Unigram: of all ways to cut a word into tokens, the one whose scores add up highest (sentencepiece's other model).
#pragma once

#include <array>
#include <optional>

#include "tokenizer/byte_trie.h"
#include "tokenizer/model.h"

namespace medley {

class JsonFields;
struct SentencePieces;

class UnigramModel final : public TokenModel {
 public:
  explicit UnigramModel(JsonFields& fields);
  // As sentencepiece computes it: sums of scores are float32.
  UnigramModel(const SentencePieces& pieces, const std::string& where);
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  void read_vocabulary(const nlohmann::json& vocab, const std::string& where);
  void find_byte_tokens();
  void best_paths(std::string_view word, ModelScratch& scratch) const;
  void add_unknown(std::string_view piece, std::vector<int32_t>& out) const;

  std::vector<double> scores_;  // [id], log probabilities
  double unk_score_ = 0;
  bool float_sums_ = false;
  std::optional<int32_t> unk_;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_{};

  ByteTrie trie_;  // the tokens that a text may be cut into
};

}  // namespace medley
