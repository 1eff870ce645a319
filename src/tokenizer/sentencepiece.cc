#include "tokenizer/sentencepiece.h"

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/scored_merges.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"

namespace medley {
namespace {

constexpr std::string_view metaspace = "\xe2\x96\x81";  // U+2581, a space inside pieces

// Sentencepiece's Normalizer: replacements by the longest match, white space, a space in front, spaces as metaspaces.
class SentencePieceNormalizer final : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieces& pieces, bool prefix_everywhere, const std::string& where)
      : prefix_(pieces.add_dummy_prefix),
        prefix_everywhere_(prefix_everywhere),
        trim_(pieces.remove_extra_whitespaces) {
    if (!pieces.charsmap.empty()) charsmap_.emplace(pieces.charsmap, where);
    for (const auto& piece : pieces.pieces)
      if (piece.type == SentencePieces::user_defined) verbatim_.add(piece.text, 0);
  }

  void apply(std::string& text) const override { apply_part(text, true); }

  void apply_part(std::string& text, bool at_start) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    std::string_view rest = text;
    if (trim_)
      while (!rest.empty() && next(rest).becomes == " ") rest.remove_prefix(next(rest).bytes);
    if (rest.empty()) return text.clear();
    if (prefix_ && (at_start || prefix_everywhere_)) out += metaspace;
    bool after_space = trim_;
    while (!rest.empty()) {
      const Charsmap::Match piece = next(rest);
      rest.remove_prefix(piece.bytes);
      std::string_view becomes = piece.becomes;
      while (after_space && becomes.starts_with(' ')) becomes.remove_prefix(1);
      append(becomes, out);
      if (trim_ && !becomes.empty()) after_space = becomes.ends_with(' ');
    }
    if (trim_)
      while (out.ends_with(metaspace)) out.resize(out.size() - metaspace.size());
    text = std::move(out);
  }

 private:
  // The beginning of `text` that is replaced as one, and by what.
  Charsmap::Match next(std::string_view text) const {
    TokenFinder::Hit hit;
    if (!verbatim_.empty() && verbatim_.find_at(text, 0, hit)) return {hit.end, text.substr(0, hit.end)};
    if (charsmap_)
      if (const auto match = charsmap_->longest(text); match.bytes > 0) return match;
    const size_t bytes = unicode::length_of(text[0]);
    return {bytes, text.substr(0, bytes)};
  }

  static void append(std::string_view text, std::string& out) {
    for (const char c : text) {
      if (c == ' ')
        out += metaspace;
      else
        out += c;
    }
  }

  std::optional<Charsmap> charsmap_;
  TokenFinder verbatim_;  // pieces that the user defined stay as they are
  bool prefix_, prefix_everywhere_, trim_;
};

BpeTables bpe_tables(const SentencePieces& pieces, const std::string& where) {
  BpeTables tables;
  std::vector<float> scores;
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    if (pieces.pieces[id].type == SentencePieces::unused)
      fail("{}: piece {} is unused, which BPE does not support", where, id);
    tables.vocabulary.add(pieces.pieces[id].text, int64_t(id), where);
    scores.push_back(pieces.pieces[id].score);
  }
  tables.merges = scored_merges(tables.vocabulary, scores,
                                [&](int32_t id) { return pieces.pieces[size_t(id)].type == SentencePieces::normal; });
  tables.unk = pieces.unk_id();
  tables.fuse_unk = true;
  tables.byte_fallback = pieces.byte_fallback;
  return tables;
}

}  // namespace

void take_sentencepieces(const SentencePieces& pieces, const std::string& where, TokenizerParts& parts) {
  if (pieces.model == SentencePieces::Model::bpe)
    parts.model = std::make_unique<BpeModel>(bpe_tables(pieces, where), false);
  else
    parts.model = std::make_unique<UnigramModel>(pieces, where);
  parts.normalizer = std::make_unique<SentencePieceNormalizer>(pieces, parts.config.legacy, where);
  parts.decoder = Decoder::sentencepiece(pieces.remove_extra_whitespaces ? SIZE_MAX : pieces.add_dummy_prefix ? 1 : 0);
  for (size_t id = 0; id < pieces.pieces.size(); ++id) {
    const auto& [text, score, type] = pieces.pieces[id];
    if (type == SentencePieces::control || type == SentencePieces::unknown)
      parts.added.add({.content = text, .id = int32_t(id), .special = true});
    // What the user defined takes no part in BPE's merges; Unigram weighs it with the rest.
    if (type == SentencePieces::user_defined && pieces.model == SentencePieces::Model::bpe)
      parts.added.add({.content = text, .id = int32_t(id), .normalized = true});
  }
  parts.added.prepare(nullptr);  // the normalizer leaves what the user defined alone

  const auto role = [&](const char* name, int32_t id) {
    if (id >= 0) parts.config.special_tokens.emplace(name, pieces.pieces[size_t(id)].text);
  };
  role("bos_token", pieces.bos_id);
  role("eos_token", pieces.eos_id);
  role("pad_token", pieces.pad_id);
  role("unk_token", pieces.unk_id());
  // Llama's tokenizers and their kin put BOS in front unless the config says otherwise.
  if (!parts.config.add_bos_token) parts.config.add_bos_token = true;
}

}  // namespace medley
