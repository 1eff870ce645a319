#include "tokenizer/pre_tokenizer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/piece_cut.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_versions.h"

namespace medley {
namespace {

class RegexSplit final : public PieceStage {
 public:
  RegexSplit(Regex pattern, CutBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert), drops_(behavior == CutBehavior::removed) {}
  void run(const Piece& piece, const PieceSink& sink) const override {
    if (!drops_ && piece.text.size() == unicode::length_of(piece.text[0])) return sink(piece);  // nothing to cut
    if (!drops_ && !piece.needs_stand_ins && piece.text.size() <= 16 && pattern_.begins_nowhere_in(piece.text))
      return sink(piece);
    const std::string seen = piece.needs_stand_ins ? unicode::with_stand_ins(piece.text) : std::string();
    RegexMatches matches(pattern_, piece.needs_stand_ins ? std::string_view(seen) : piece.text);
    cut(piece, behavior_, invert_, sink, [&](size_t& begin, size_t& end) {
      Regex::Match match;
      if (!matches.next(match)) return false;
      begin = match.begin, end = match.end;
      return true;
    });
  }

 private:
  Regex pattern_;
  CutBehavior behavior_;
  bool invert_, drops_;
};

// Every character of a class is a match by itself.
class CharSplit final : public PieceStage {
 public:
  using Class = bool (*)(char32_t);
  CharSplit(Class in_class, CutBehavior behavior) : in_class_(in_class), behavior_(behavior) {}
  void run(const Piece& piece, const PieceSink& sink) const override {
    size_t at = 0;
    cut(piece, behavior_, false, sink, [&](size_t& begin, size_t& end) {
      while (at < piece.text.size()) {
        const unicode::Char c = unicode::next(piece.text.substr(at));
        begin = at, end = at += c.bytes;
        if (in_class_(c.code)) return true;
      }
      return false;
    });
  }

 private:
  Class in_class_;
  CutBehavior behavior_;
};

class ByteLevel final : public PieceStage {
 public:
  ByteLevel(bool prefix_space, bool use_regex, bool spell, const std::string& where)
      : prefix_space_(prefix_space), spell_(spell) {
    if (use_regex)
      split_ = std::make_unique<RegexSplit>(Regex(byte_level::gpt2_pattern, where), CutBehavior::isolated, false);
  }
  void run(const Piece& piece, const PieceSink& sink) const override {
    if (!prefix_space_ || piece.text.starts_with(' ')) return run_whole(piece, sink);
    const std::string with_space = " " + std::string(piece.text);
    run_whole({with_space, piece.at_start, piece.needs_stand_ins}, sink);
  }

 private:
  void run_whole(const Piece& piece, const PieceSink& sink) const {
    const auto spelled = [&](const Piece& word) { sink({byte_level::encoded(word.text), word.at_start}); };
    if (split_)
      spell_ ? split_->run(piece, PieceSink(spelled)) : split_->run(piece, sink);
    else
      spell_ ? spelled(piece) : sink(piece);
  }

  bool prefix_space_, spell_;
  std::unique_ptr<RegexSplit> split_;
};

// Spaces become a visible character, and words begin with it (sentencepiece).
class Metaspace final : public PieceStage {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}
  void run(const Piece& piece, const PieceSink& sink) const override {
    std::string text;
    text.reserve(piece.text.size() + 8);
    for (const char c : piece.text) c == ' ' ? text += replacement_ : text += c;
    const bool wanted = prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.at_start);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    if (!split_) return sink({text, piece.at_start, piece.needs_stand_ins});
    size_t from = 0;
    cut({text, piece.at_start, piece.needs_stand_ins}, CutBehavior::merged_with_next, false, sink,
        [&](size_t& begin, size_t& end) {
          begin = text.find(replacement_, from);
          if (begin == std::string::npos) return false;
          end = from = begin + replacement_.size();
          return true;
        });
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  bool split_;
};

std::unique_ptr<PieceStage> make_metaspace(JsonFields& fields) {
  const std::string replacement = fields.text("replacement");
  if (unicode::count(replacement) != 1) fields.refuse("replacement", "must be one character");
  // Files written before there was a scheme say add_prefix_space.
  std::string scheme = fields.text("prepend_scheme", fields.flag("add_prefix_space", true) ? "always" : "never");
  fields.ignore({"str_rep"});
  const bool split = fields.flag("split", true);
  if (scheme == "always") return std::make_unique<Metaspace>(replacement, Metaspace::Prepend::always, split);
  if (scheme == "first") return std::make_unique<Metaspace>(replacement, Metaspace::Prepend::first, split);
  if (scheme == "never") return std::make_unique<Metaspace>(replacement, Metaspace::Prepend::never, split);
  fields.refuse("prepend_scheme", "must be always, first or never, not " + scheme);
}

using Stages = std::vector<std::unique_ptr<PieceStage>>;

void add_stages(const nlohmann::json& json, const std::string& where, Stages& out, bool spell_bytes) {
  JsonFields fields(json, where);
  const std::string type = fields.text("type");
  const auto split_on = [&](CharSplit::Class in_class, CutBehavior behavior) {
    out.push_back(std::make_unique<CharSplit>(in_class, behavior));
  };
  if (type == "Sequence") {
    const auto& list = fields.list("pretokenizers");
    for (size_t i = 0; i < list.size(); ++i) add_stages(list[i], where, out, spell_bytes || i + 1 < list.size());
  } else if (type == "ByteLevel") {
    fields.ignore({"trim_offsets"});  // concerns offsets into the text, which nobody asks for here
    const bool prefix_space = fields.flag("add_prefix_space", true), use_regex = fields.flag("use_regex", true);
    if (prefix_space || use_regex || spell_bytes)  // otherwise there is nothing for it to do
      out.push_back(std::make_unique<ByteLevel>(prefix_space, use_regex, spell_bytes, where));
  } else if (type == "Split") {
    Regex pattern = text_pattern(fields.any("pattern"), where + ".Split");
    const CutBehavior behavior = cut_behavior(fields.text("behavior"), where + ".Split");
    out.push_back(std::make_unique<RegexSplit>(std::move(pattern), behavior, fields.flag("invert", false)));
  } else if (type == "Digits") {
    const bool each = fields.flag("individual_digits", false);
    split_on(unicode::is_numeric, each ? CutBehavior::isolated : CutBehavior::contiguous);
  } else if (type == "Punctuation") {
    split_on(unicode::is_punctuation, cut_behavior(fields.text("behavior", "Isolated"), where + ".Punctuation"));
  } else if (type == "Whitespace") {
    out.push_back(std::make_unique<RegexSplit>(Regex(R"(\w+|[^\w\s]+)", where), CutBehavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    split_on(unicode::is_white_space, CutBehavior::removed);
  } else if (type == "CharDelimiterSplit") {
    out.push_back(
        std::make_unique<RegexSplit>(Regex::literal(fields.text("delimiter"), where), CutBehavior::removed, false));
  } else if (type == "BertPreTokenizer") {
    split_on(unicode::is_white_space, CutBehavior::removed);
    split_on(unicode::is_punctuation, CutBehavior::isolated);
  } else if (type == "Metaspace") {
    out.push_back(make_metaspace(fields));
  } else {
    fail(
        "{}: the pre-tokenizer \"{}\" is not supported; supported are ByteLevel, Split, Digits, Punctuation, "
        "Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, Metaspace, Sequence",
        where, type);
  }
  fields.done();
}

void run_from(const Stages& stages, size_t stage, const Piece& piece, const PieceSink& sink) {
  if (piece.text.empty()) return;
  if (stage == stages.size()) return sink(piece);
  const auto next = [&](const Piece& cut_piece) { run_from(stages, stage + 1, cut_piece, sink); };
  stages[stage]->run(piece, PieceSink(next));
}

}  // namespace

PreTokenizer PreTokenizer::make(const nlohmann::json& json, const std::string& where, bool bytes_stay_bytes) {
  PreTokenizer made;
  if (!json.is_null()) add_stages(json, where, made.stages_, !bytes_stay_bytes);
  return made;
}

bool PreTokenizer::ends_in_byte_level(const nlohmann::json& json) {
  const nlohmann::json* last = &json;
  while (last->is_object() && last->contains("pretokenizers")) {
    const auto& list = last->at("pretokenizers");
    if (!list.is_array() || list.empty()) return false;
    last = &list.back();
  }
  return last->is_object() && last->contains("type") && last->at("type") == "ByteLevel";
}

void PreTokenizer::run(const Piece& piece, const PieceSink& sink) const {
  run_from(stages_, 0, piece, sink);
}

}  // namespace medley
