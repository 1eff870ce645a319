#include "tokenizer/unicode_versions.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <memory>

#include "tokenizer/unicode.h"

namespace medley::unicode {
namespace {

struct Range {
  char32_t first, last;
};
struct Mapped {
  char32_t first, last, value;
};

#include "tokenizer/unicode_tables.inc"

template <class Table>
auto lookup(const Table& table, char32_t code) -> decltype(std::begin(table)) {
  const auto it = std::upper_bound(std::begin(table), std::end(table), code,
                                   [](char32_t value, const auto& range) { return value < range.first; });
  return it != std::begin(table) && code <= std::prev(it)->last ? std::prev(it) : std::end(table);
}

template <class Table>
std::optional<bool> flag(const Table& table, char32_t code) {
  const auto it = lookup(table, code);
  return it == std::end(table) ? std::nullopt : std::optional(it->value != 0);
}

using CodeSet = std::bitset<0x110000>;  // a bit a character: asked for every character of a text

const CodeSet& replaced_codes() {
  static const auto set = [] {
    auto made = std::make_unique<CodeSet>();
    for (const Mapped& range : stand_ins)
      for (char32_t code = range.first; code <= range.last; ++code) made->set(code);
    return made;
  }();
  return *set;
}

}  // namespace

bool needs_stand_ins(std::string_view text) {
  const CodeSet& replaced = replaced_codes();
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Char c = next(text.substr(at));
    if (replaced[c.code]) return true;
    at += c.bytes;
  }
  return false;
}

std::string with_stand_ins(std::string_view text) {
  const CodeSet& replaced = replaced_codes();
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Char c = next(text);
    append(out, replaced[c.code] ? lookup(stand_ins, c.code)->value : c.code);
    text.remove_prefix(c.bytes);
  }
  return out;
}

bool has_no_normal_form(char32_t code) {
  return lookup(no_normalization, code) != std::end(no_normalization);
}
std::optional<bool> punctuation_by_package(char32_t code) {
  return flag(punctuation_differences, code);
}
std::optional<bool> numeric_by_package(char32_t code) {
  return flag(numeric_differences, code);
}

}  // namespace medley::unicode
