// Unigram: of all ways to cut a word into tokens, the one whose scores add up highest (sentencepiece's other model).
#pragma once

#include <array>
#include <optional>

#include "tokenizer/merge_table.h"
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
  void add_to_trie(std::string_view token, int32_t id);
  void best_paths(std::string_view word, ModelScratch& scratch) const;
  void add_piece(std::string_view piece, std::vector<int32_t>& out) const;

  std::vector<double> scores_;  // [id], log probabilities
  double unk_score_ = 0;
  bool float_sums_ = false;
  std::optional<int32_t> unk_;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_{};

  // The vocabulary by its bytes: edges (node, byte) -> node, and the token that ends at a node, -1 if none.
  MergeTable edges_{0};
  std::vector<int32_t> token_at_{-1};
};

}  // namespace medley
