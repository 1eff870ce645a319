// Regular expressions of tokenizer.json: written for Oniguruma (Ruby's syntax), run by PCRE2 with JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace medley {

// Rewrites what the two libraries read differently: \s, \w and \h, \uXXXX, long property names, nested character
// classes and their intersections ([\p{L}&&[^\p{Han}]]). Throws Error naming `where` for what has no counterpart.
std::string pcre_from_oniguruma(std::string_view pattern, const std::string& where);

bool pcre_compiles(std::string_view pattern);

class Regex {
 public:
  // Throws Error "WHERE: ... at offset N" when the pattern does not compile.
  Regex(std::string_view pattern, const std::string& where);
  static Regex literal(std::string_view text, const std::string& where);

  struct Match {
    size_t begin = 0, end = 0;
  };
  // The first match at or after `from`. `text` is valid UTF-8 and `from` a character's border. Safe from several
  // threads. Throws Error when the pattern exceeds its budget of backtracking on this text.
  bool find(std::string_view text, size_t from, Match& match) const;
  // Whether no byte of `text` can begin a match: cheaper than a call that finds nothing, for short texts.
  bool begins_nowhere_in(std::string_view text) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The matches from left to right as Oniguruma's iterator gives them: an empty match right after another match is
// skipped.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}
  bool next(Regex::Match& match);

 private:
  const Regex& regex_;
  std::string_view text_;
  size_t from_ = 0;
  size_t last_end_ = size_t(-1);
};

}  // namespace medley
