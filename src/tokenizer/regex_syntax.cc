// Oniguruma's syntax to PCRE2's. Most of the text passes through; see regex.h for what changes.
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tokenizer/regex.h"

namespace medley {
namespace {

// Members of a class, without brackets. PCRE2's own \s also takes U+180E, which lost the property White_Space.
constexpr const char* space_members =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr const char* word_members = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr const char* hex_members = "0-9A-Fa-f";

constexpr std::array<std::pair<std::string_view, std::string_view>, 26> property_names{{
    {"Letter", "L"},
    {"Punctuation", "P"},
    {"Punct", "P"},
    {"Number", "N"},
    {"Symbol", "S"},
    {"Mark", "M"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Space", "White_Space"},
    {"Alpha", "Alphabetic"},
    {"Digit", "Nd"},
    {"Upper", "Uppercase"},
    {"Lower", "Lowercase"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Other_Symbol", "So"},
}};

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    std::string out;
    while (!done()) {
      if (peek() == '\\')
        out += escape(false);
      else if (peek() == '[')
        out += char_class(0);
      else
        out += in_[at_++];
    }
    return out;
  }

 private:
  bool done() const { return at_ >= in_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  [[noreturn]] void refuse(const char* what) const {
    fail("{}: {} at offset {} of the regex {}", where_, what, at_, in_);
  }

  static std::string members(const char* text, bool in_class) {
    return in_class ? std::string(text) : "[" + std::string(text) + "]";
  }

  // At a backslash: one escape, with at_ left after it.
  std::string escape(bool in_class) {
    const char c = peek(1);
    if (c == '\0') refuse("a backslash with nothing after it");
    at_ += 2;
    switch (c) {
      case 's': return members(space_members, in_class);
      case 'S': return in_class ? "\\P{White_Space}" : "[^" + std::string(space_members) + "]";
      case 'w': return members(word_members, in_class);
      case 'W':
        if (in_class) refuse("\\W inside a character class is not supported");
        return "[^" + std::string(word_members) + "]";
      case 'h': return members(hex_members, in_class);
      case 'H':
        if (in_class) refuse("\\H inside a character class is not supported");
        return "[^" + std::string(hex_members) + "]";
      case 'u': {
        if (at_ + 4 > in_.size()) refuse("\\u needs four hexadecimal digits");
        const std::string digits(in_.substr(at_, 4));
        at_ += 4;
        return "\\x{" + digits + "}";
      }
      case 'p':
      case 'P': return property(c);
      default: return {'\\', c};
    }
  }

  std::string property(char kind) {
    if (peek() != '{') return {'\\', kind};
    const size_t close = in_.find('}', at_);
    if (close == std::string_view::npos) refuse("a property without its closing brace");
    std::string_view name = in_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    for (const auto& [from, to] : property_names)
      if (name == from) name = to;
    const std::string out{'\\', negated ? (kind == 'p' ? 'P' : 'p') : kind, '{'};
    // A script's plain name means its extensions too to PCRE2 (punctuation it shares with other scripts), but not to
    // Ruby.
    const std::string script = out + "sc:" + std::string(name) + "}";
    return name.size() > 2 && pcre_compiles(script) ? script : out + std::string(name) + "}";
  }

  // At "[": a class, perhaps with classes inside and intersections. A plain one stays a class; the others become
  // groups that look at one character: a union is an alternation, A&&B is (?=A)B.
  std::string char_class(int depth) {
    if (depth > 16) refuse("character classes nested deeper than 16");
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    std::vector<std::string> terms;  // of the intersection
    std::string plain;               // members of the term being read
    std::vector<std::string> nested;
    const auto finish_term = [&] {
      if (!plain.empty()) nested.push_back("[" + plain + "]");
      if (nested.empty()) refuse("an empty part of a character class");
      std::string term = nested.size() == 1 ? nested[0] : "";
      if (term.empty()) {
        for (const auto& part : nested) term += (term.empty() ? "(?:" : "|") + part;
        term += ")";
      }
      terms.push_back(std::move(term));
      plain.clear();
      nested.clear();
    };
    for (bool first = true;; first = false) {
      if (done()) refuse("a character class without its closing bracket");
      if (peek() == ']' && !first) break;
      if (peek() == '\\') {
        plain += escape(true);
      } else if (peek() == '[' && peek(1) == ':') {
        const size_t close = in_.find(":]", at_);
        if (close == std::string_view::npos) refuse("a POSIX class without its end");
        plain += in_.substr(at_, close + 2 - at_);
        at_ = close + 2;
      } else if (peek() == '[') {
        nested.push_back(char_class(depth + 1));
      } else if (peek() == '&' && peek(1) == '&') {
        at_ += 2;
        finish_term();
      } else {
        plain += first && peek() == ']' ? std::string("\\]") : std::string(1, peek());
        ++at_;
      }
    }
    ++at_;
    if (terms.empty() && nested.empty()) return (negated ? "[^" : "[") + plain + "]";
    finish_term();
    std::string all;
    for (size_t i = 0; i + 1 < terms.size(); ++i) all += "(?=" + terms[i] + ")";
    all += terms.back();
    return negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace medley
