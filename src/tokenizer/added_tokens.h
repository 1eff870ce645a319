// Tokens cut out of the text before the model sees it (tokenizer.json's "added_tokens": <|im_end|> and its kind).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace medley {

class Normalizer;

struct AddedToken {
  std::string content;
  std::string shown;  // what decoding sees: the content, normalised if the token is (as the tokenizers package has it)
  int32_t id = 0;
  bool special = false;      // left out of decoded text on request
  bool single_word = false;  // only between characters that make no words
  bool lstrip = false;       // takes the white space on its left with it
  bool rstrip = false;
  bool normalized = false;  // looked for in the normalised text
};

// Finds the longest of several strings at each position, left to right.
class TokenFinder {
 public:
  void add(std::string_view content, uint32_t value);
  struct Hit {
    size_t begin = 0, end = 0;
    uint32_t value = 0;
  };
  bool find(std::string_view text, size_t from, Hit& hit) const;
  bool find_at(std::string_view text, size_t begin, Hit& hit) const;  // beginning there
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    char byte = 0;
    int32_t child = -1, sibling = -1;  // of nodes_
    int32_t value = -1;
  };
  int32_t child_of(int32_t node, char byte) const;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<int32_t> first_ = std::vector<int32_t>(256, -1);  // the root's children by byte
};

class AddedTokens {
 public:
  // A token that the model's vocabulary has too keeps the vocabulary's id.
  void read(const nlohmann::json& list, const std::string& where, const Vocabulary& vocabulary);
  void add(AddedToken token);
  // Call once after the last add: looks up what normalised tokens look like in normalised text.
  void prepare(const Normalizer* normalizer);

  struct Part {
    size_t begin = 0, end = 0;
    int32_t id = -1;  // -1: plain text
  };
  // Cuts `text` at the tokens to be looked for before (or after) normalisation. Parts replaces what is in `parts`.
  void split(std::string_view text, bool after_normalization, std::vector<Part>& parts) const;
  bool any(bool after_normalization) const { return !finder_[after_normalization].empty(); }

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  int32_t end_id() const { return end_id_; }
  size_t count_outside(const Vocabulary& vocabulary) const;

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  TokenFinder finder_[2];  // [after_normalization]
  int32_t end_id_ = 0;
};

}  // namespace medley
