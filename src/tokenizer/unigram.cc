#include "tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/hash.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/unicode.h"

namespace medley {

namespace {
constexpr double unk_penalty = 10.0;  // below the worst token, as sentencepiece has it
}

UnigramModel::UnigramModel(JsonFields& fields) {
  read_vocabulary(fields.list("vocab"), fields.where());
  const int64_t unk = fields.integer("unk_id", -1);
  if (unk >= 0) {
    if (!vocabulary_.token(int32_t(std::min<int64_t>(unk, INT32_MAX))))
      fields.refuse("unk_id", "is not in the vocabulary");
    unk_ = int32_t(unk);
  }
  byte_fallback_ = fields.flag("byte_fallback", false);
  find_byte_tokens();
}

UnigramModel::UnigramModel(const SentencePieces& pieces, const std::string& where) {
  float lowest = std::numeric_limits<float>::max();
  for (const SentencePieces::Piece& piece : pieces.pieces)
    if (piece.type == SentencePieces::normal) lowest = std::min(lowest, piece.score);
  unk_score_ = lowest - float(unk_penalty);
  std::vector<ByteTrie::Entry> tokens;
  for (const auto& [text, score, type] : pieces.pieces) {
    const auto id = int32_t(scores_.size());
    vocabulary_.add(text, id, where);
    scores_.push_back(score);  // of a piece that the user defined: 0, so that it wins against any cut of its text
    if (type == SentencePieces::normal || type == SentencePieces::user_defined) tokens.push_back({text, id});
  }
  trie_ = ByteTrie(std::move(tokens));
  unk_ = pieces.unk_id();
  byte_fallback_ = pieces.byte_fallback;
  float_sums_ = true;
  find_byte_tokens();
}

void UnigramModel::find_byte_tokens() {
  for (size_t byte = 0; byte < 256; ++byte)
    fallback_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

void UnigramModel::read_vocabulary(const nlohmann::json& vocab, const std::string& where) {
  double lowest = 0;
  const std::string member = where + ".vocab";
  vocabulary_.reserve(vocab.size());
  for (const auto& item : vocab) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number())
      fail("{}: the vocabulary holds {}, not [token, score]", where, item.dump());
    const auto& token = item[0].get_ref<const std::string&>();
    vocabulary_.add(token, int64_t(scores_.size()), member);
    scores_.push_back(item[1].get<double>());
    lowest = scores_.size() == 1 ? scores_[0] : std::min(lowest, scores_.back());
  }
  if (scores_.empty()) fail("{}: the vocabulary is empty", where);
  unk_score_ = lowest - unk_penalty;
  std::vector<ByteTrie::Entry> tokens;
  for (int32_t id = 0; id < vocabulary_.end_id(); ++id) tokens.push_back({*vocabulary_.token(id), id});
  trie_ = ByteTrie(std::move(tokens));
}

// scratch.paths[end]: the best way to cover word[0, end), where its last token begins and which.
void UnigramModel::best_paths(std::string_view word, ModelScratch& scratch) const {
  constexpr uint32_t unreached = 0xffffffffu;
  auto& paths = scratch.paths;
  paths.assign(word.size() + 1, {0, unreached, -1});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    double total = paths[begin].score + score;
    if (float_sums_) total = double(float(total));
    auto& best = paths[end];
    if (best.begin == unreached || total > best.score) best = {total, uint32_t(begin), id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t next = begin + unicode::length_of(word[begin]);
    bool has_character = false;
    int32_t node = 0;
    for (size_t at = begin; at < word.size(); ++at) {
      node = trie_.step(node, static_cast<unsigned char>(word[at]));
      if (node < 0) break;
      const int32_t id = trie_.value(node);
      if (id < 0) continue;
      offer(begin, at + 1, scores_[size_t(id)], id);
      has_character |= at + 1 == next;
    }
    if (!has_character) {
      if (!unk_) fail("the tokenizer's Unigram model has no unk_id and no token for a character of the text");
      offer(begin, next, unk_score_, *unk_);
    }
    begin = next;
  }
}

// Unknown characters side by side are one piece, which may spell a token.
void UnigramModel::add_unknown(std::string_view piece, std::vector<int32_t>& out) const {
  if (const auto id = vocabulary_.find(piece)) return out.push_back(*id);
  const auto has_token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)] >= 0; };
  if (byte_fallback_ && std::all_of(piece.begin(), piece.end(), has_token)) {
    for (const char byte : piece) out.push_back(fallback_[static_cast<unsigned char>(byte)]);
    return;
  }
  out.push_back(*unk_);
}

void UnigramModel::encode(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  const bool cached = word.size() <= WordCache::longest_word;
  const uint64_t hash = cached ? hash_bytes(word) : 0;
  if (cached) {
    const auto known = scratch.words.find(word, hash);
    if (!known.empty()) return void(out.insert(out.end(), known.begin(), known.end()));
  }
  best_paths(word, scratch);
  // The tokens' ends, last first.
  auto& ends = scratch.piece_ends;
  ends.clear();
  for (size_t end = word.size(); end > 0; end = scratch.paths[end].begin) ends.push_back(uint32_t(end));
  const size_t first = out.size();
  const auto id_of_next = [&] { return scratch.paths[ends.back()].id; };
  for (size_t begin = 0; !ends.empty();) {
    const int32_t id = id_of_next();
    size_t end = ends.back();
    ends.pop_back();
    if (id != unk_) {
      out.push_back(id);
    } else {
      for (; !ends.empty() && id_of_next() == id; ends.pop_back()) end = ends.back();
      add_unknown(word.substr(begin, end - begin), out);
    }
    begin = end;
  }
  if (cached) scratch.words.insert(word, hash, std::span(out).subspan(first));
}

}  // namespace medley
