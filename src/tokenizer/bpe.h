// Byte-pair encoding: a word starts as characters (or bytes), and the pair of neighbours with the lowest rank merges
// until no pair can. Ties go to the left.
#pragma once

#include <array>
#include <optional>

#include "tokenizer/merge_table.h"
#include "tokenizer/model.h"

namespace medley {

class JsonFields;

// A model as it comes from elsewhere than tokenizer.json.
struct BpeTables {
  Vocabulary vocabulary;
  MergeTable merges{0};
  bool ignore_merges = false, byte_fallback = false;
  std::optional<int32_t> unk;
  bool fuse_unk = false;
};

class BpeModel final : public TokenModel {
 public:
  BpeModel(JsonFields& fields, bool allow_byte_words);
  BpeModel(BpeTables tables, bool allow_byte_words);
  void encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const override;
  bool byte_words() const { return byte_words_; }

 private:
  void read_vocabulary(const nlohmann::json& vocab, const std::string& where);
  void read_merges(const nlohmann::json& merges, const std::string& where);
  void prepare(bool allow_byte_words);
  void take_bytes();
  void find_characters();
  void find_safe_cuts();

  void encode_part(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  int32_t id_of_character(std::string_view c) const;  // -1 if it has none
  void symbols_of(std::string_view word, std::vector<int32_t>& out) const;
  std::optional<int32_t> whole_word(std::string_view word) const;
  void merge_short(std::vector<int32_t>& ids) const;

  MergeTable merges_{0};
  bool ignore_merges_ = false;  // a word that is a token needs no merges to be one
  bool fuse_unk_ = false;
  std::optional<int32_t> unk_;
  bool byte_fallback_ = false;
  std::array<int32_t, 256> fallback_{};  // <0x00> ... <0xFF>

  bool byte_words_ = false;
  std::array<int32_t, 256> byte_ids_{};
  Vocabulary byte_tokens_;  // tokens by their bytes, for ignore_merges

  std::vector<int32_t> character_ids_;  // [code], of two bytes at most: every character of nearly every text

  // A text that is one piece (sentencepiece's vocabularies cut none) may be cut between two characters that stand side
  // by side in no token, for no merge crosses there: most words' ends, most punctuation. The parts are short and come
  // back, so that the cache knows them. [class before][class after], empty if there are no such cuts.
  static constexpr size_t character_classes = 512;
  static size_t class_of(std::string_view c);
  std::vector<bool> joined_;
};

}  // namespace medley
