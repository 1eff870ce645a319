#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace medley {

int32_t TokenFinder::child_of(int32_t node, char byte) const {
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  int32_t child = nodes_[size_t(node)].child;
  while (child >= 0 && nodes_[size_t(child)].byte != byte) child = nodes_[size_t(child)].sibling;
  return child;
}

void TokenFinder::add(std::string_view content, uint32_t value) {
  int32_t node = 0;
  for (const char byte : content) {
    int32_t child = child_of(node, byte);
    if (child < 0) {
      child = int32_t(nodes_.size());
      nodes_.push_back({byte, -1, node == 0 ? -1 : nodes_[size_t(node)].child, -1});
      (node == 0 ? first_[static_cast<unsigned char>(byte)] : nodes_[size_t(node)].child) = child;
    }
    node = child;
  }
  if (node != 0 && nodes_[size_t(node)].value < 0) nodes_[size_t(node)].value = int32_t(value);
}

bool TokenFinder::find(std::string_view text, size_t from, Hit& hit) const {
  for (size_t begin = from; begin < text.size(); ++begin)
    if (first_[static_cast<unsigned char>(text[begin])] >= 0 && find_at(text, begin, hit)) return true;
  return false;
}

bool TokenFinder::find_at(std::string_view text, size_t begin, Hit& hit) const {
  int32_t node = first_[static_cast<unsigned char>(text[begin])];
  bool found = false;
  for (size_t at = begin + 1; node >= 0; ++at) {
    if (const int32_t value = nodes_[size_t(node)].value; value >= 0) {
      hit = {begin, at, uint32_t(value)};
      found = true;
    }
    if (at == text.size()) break;
    node = child_of(node, text[at]);
  }
  return found;
}

void AddedTokens::read(const nlohmann::json& list, const std::string& where, const Vocabulary& vocabulary) {
  if (list.is_null()) return;
  if (!list.is_array()) fail("{}: expected a list, found {}", where, list.type_name());
  for (const auto& item : list) {
    JsonFields fields(item, where);
    AddedToken token;
    token.content = fields.text("content");
    const int64_t id = fields.integer("id", -1);
    if (id < 0 || id >= 1 << 24) fields.refuse("id", fmt::format("of \"{}\" is {}", token.content, id));
    token.id = vocabulary.find(token.content).value_or(int32_t(id));
    token.special = fields.flag("special", false);
    token.single_word = fields.flag("single_word", false);
    token.lstrip = fields.flag("lstrip", false);
    token.rstrip = fields.flag("rstrip", false);
    token.normalized = fields.flag("normalized", !token.special);
    fields.done();
    add(std::move(token));
  }
}

void AddedTokens::add(AddedToken token) {
  if (token.content.empty() || by_content_.contains(token.content)) return;
  end_id_ = std::max(end_id_, token.id + 1);
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(token));
}

void AddedTokens::prepare(const Normalizer* normalizer) {
  // Special ones first: of two that are the same text once normalised, the first counts.
  for (const bool special : {true, false}) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      token.shown = token.content;
      if (token.normalized && normalizer) normalizer->apply(token.shown);
      finder_[token.normalized].add(token.shown, uint32_t(i));
    }
  }
}

namespace {

bool is_word_char(std::string_view character) {
  static const Regex word("\\w", "single_word");
  Regex::Match match;
  return word.find(character, 0, match);
}

bool ends_in_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return is_word_char(text.substr(at));
}

bool starts_with_word(std::string_view text) {
  return !text.empty() && is_word_char(text.substr(0, unicode::length_of(text[0])));
}

}  // namespace

void AddedTokens::split(std::string_view text, bool after_normalization, std::vector<Part>& parts) const {
  parts.clear();
  size_t done = 0;
  TokenFinder::Hit hit;
  for (size_t from = 0; finder_[after_normalization].find(text, from, hit); from = hit.end) {
    const AddedToken& token = tokens_[hit.value];
    if (token.single_word && (ends_in_word(text.substr(0, hit.begin)) || starts_with_word(text.substr(hit.end))))
      continue;
    size_t begin = hit.begin, end = hit.end;
    if (token.lstrip) begin = std::max(unicode::strip_right(text.substr(0, begin)).size(), done);
    if (token.rstrip) end = text.size() - unicode::strip_left(text.substr(end)).size();
    if (done < begin) parts.push_back({done, begin, -1});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(std::string(content));
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

size_t AddedTokens::count_outside(const Vocabulary& vocabulary) const {
  return size_t(std::count_if(tokens_.begin(), tokens_.end(),
                              [&](const AddedToken& token) { return !vocabulary.find(token.content); }));
}

}  // namespace medley
