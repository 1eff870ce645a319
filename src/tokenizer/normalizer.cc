#include "tokenizer/normalizer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "tokenizer/base64.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/regex.h"
#include "tokenizer/text_pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_forms.h"

namespace medley {
namespace {

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}
  void apply(std::string& text) const override { unicode::normalize(text, form_); }

 private:
  unicode::Form form_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::string& text) const override {
    RegexMatches matches(pattern_, text);
    Regex::Match match;
    if (!matches.next(match)) return;
    std::string out;
    size_t done = 0;
    do {
      out.append(text, done, match.begin - done);
      out += content_;
      done = match.end;
    } while (matches.next(match));
    out.append(text, done);
    text = std::move(out);
  }

 private:
  Regex pattern_;
  std::string content_;
};

// Replace with a plain string, by far the most used: every space of every text through sentencepiece's vocabularies.
class ReplaceText final : public Normalizer {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void apply(std::string& text) const override {
    size_t at = text.find(from_);
    if (at == std::string::npos) return;
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    if (from_.size() == 1) {
      for (const char c : text) c == from_[0] ? out += to_ : out += c;
      return void(text = std::move(out));
    }
    size_t done = 0;
    for (; at != std::string::npos; at = text.find(from_, done)) {
      out.append(text, done, at - done);
      out += to_;
      done = at + from_.size();
    }
    out.append(text, done);
    text = std::move(out);
  }

 private:
  std::string from_, to_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(std::string& text) const override {
    std::string_view rest = text;
    if (left_) rest = unicode::strip_left(rest);
    if (right_) rest = unicode::strip_right(rest);
    if (rest.size() != text.size()) text = std::string(rest);
  }

 private:
  bool left_, right_;
};

template <class Map>  // char32_t -> what to append
class EachChar final : public Normalizer {
 public:
  explicit EachChar(Map map) : map_(map) {}
  void apply(std::string& text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::string_view rest = text; !rest.empty();) {
      const unicode::Char c = unicode::next(rest);
      map_(c.code, out);
      rest.remove_prefix(c.bytes);
    }
    text = std::move(out);
  }

 private:
  Map map_;
};

void append_lower(char32_t code, std::string& out) {
  // The one character whose lower case is two (SpecialCasing.txt, rules without conditions).
  if (code == 0x130)
    out += "i\xcc\x87";
  else
    unicode::append(out, unicode::lower(code));
}

void append_unless_mark(char32_t code, std::string& out) {
  if (!unicode::is_mark(code)) unicode::append(out, code);
}

class ByteAlphabet final : public Normalizer {
 public:
  void apply(std::string& text) const override { text = byte_level::encoded(text); }
};

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::string_view data, const std::string& where) : charsmap_(data, where) {}
  void apply(std::string& text) const override { apply_by_grapheme(charsmap_, text); }

 private:
  Charsmap charsmap_;
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(std::string& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }
  void apply_part(std::string& text, bool at_start) const override {
    for (const auto& part : parts_) part->apply_part(text, at_start);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::optional<unicode::Form> form_of(const std::string& type) {
  if (type == "NFC") return unicode::Form::nfc;
  if (type == "NFD") return unicode::Form::nfd;
  if (type == "NFKC") return unicode::Form::nfkc;
  if (type == "NFKD") return unicode::Form::nfkd;
  return std::nullopt;
}

std::unique_ptr<Normalizer> make_sequence(JsonFields& fields) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const auto& item : fields.list("normalizers"))
    if (auto part = make_normalizer(item, fields.where())) parts.push_back(std::move(part));
  fields.done();
  if (parts.empty()) return nullptr;
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& json, const std::string& where) {
  if (json.is_null()) return nullptr;
  JsonFields fields(json, where);
  const std::string type = fields.text("type");
  if (type == "Sequence") return make_sequence(fields);
  std::unique_ptr<Normalizer> made;
  if (const auto form = form_of(type)) {
    made = std::make_unique<UnicodeForm>(*form);
  } else if (type == "Prepend") {
    made = std::make_unique<Prepend>(fields.text("prepend"));
  } else if (type == "Replace") {
    const auto& json_pattern = fields.any("pattern");
    Regex pattern = text_pattern(json_pattern, where + ".Replace");
    const auto literal = json_pattern.find("String");
    if (literal != json_pattern.end() && !literal->get_ref<const std::string&>().empty())
      made = std::make_unique<ReplaceText>(literal->get<std::string>(), fields.text("content"));
    else
      made = std::make_unique<Replace>(std::move(pattern), fields.text("content"));
  } else if (type == "Strip") {
    const bool left = fields.flag("strip_left", true);
    made = std::make_unique<Strip>(left, fields.flag("strip_right", true));
  } else if (type == "Lowercase") {
    made = std::make_unique<EachChar<decltype(&append_lower)>>(append_lower);
  } else if (type == "StripAccents") {
    made = std::make_unique<EachChar<decltype(&append_unless_mark)>>(append_unless_mark);
  } else if (type == "ByteLevel") {
    made = std::make_unique<ByteAlphabet>();
  } else if (type == "Precompiled") {
    const auto data = from_base64(fields.text("precompiled_charsmap"));
    if (!data) fields.refuse("precompiled_charsmap", "is not base64");
    if (!data->empty()) made = std::make_unique<Precompiled>(*data, where);
  } else {
    fail(
        "{}: the normalizer \"{}\" is not supported; supported are NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, "
        "Lowercase, StripAccents, ByteLevel, Precompiled, Sequence",
        where, type);
  }
  fields.done();
  return made;
}

}  // namespace medley
