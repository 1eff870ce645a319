// str.isdigit and its kind.
#include <utf8proc.h>

#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

template <class Test>
bool all(std::string_view text, Test test) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    if (!test(c.code)) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

auto category(char32_t code) {
  return utf8proc_category(utf8proc_int32_t(code));
}
bool is_letter(char32_t code) {
  return category(code) >= UTF8PROC_CATEGORY_LU && category(code) <= UTF8PROC_CATEGORY_LO;
}
// Superscripts and circled digits are digits but no decimals (Numeric_Type=Digit).
bool is_digit(char32_t code) {
  if (category(code) == UTF8PROC_CATEGORY_ND) return true;
  const auto in = [code](char32_t low, char32_t high) { return code >= low && code <= high; };
  return in(0xb2, 0xb3) || code == 0xb9 || in(0x1369, 0x1371) || code == 0x19da || code == 0x2070 ||
         in(0x2074, 0x2079) || in(0x2080, 0x2089) || in(0x2460, 0x2468) || in(0x2474, 0x247c) || in(0x2488, 0x2490) ||
         code == 0x24ea || in(0x24f5, 0x24fd) || code == 0x24ff || in(0x2776, 0x277e) || in(0x2780, 0x2788) ||
         in(0x278a, 0x2792) || in(0x10a40, 0x10a43) || in(0x10e60, 0x10e68) || in(0x11052, 0x1105a) ||
         in(0x1f100, 0x1f10a);
}

enum class Case { none, lower, upper, title };
Case case_of(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU: return Case::upper;
    case UTF8PROC_CATEGORY_LL: return Case::lower;
    case UTF8PROC_CATEGORY_LT: return Case::title;
    default: return Case::none;
  }
}

bool cased_as(std::string_view text, Case wanted) {
  bool any = false;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    const Case found = case_of(c.code);
    if (found != Case::none && found != wanted) return false;
    any |= found == wanted;
    text.remove_prefix(c.bytes);
  }
  return any;
}

}  // namespace

bool all_decimals(std::string_view text) {
  return all(text, [](char32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; });
}
bool all_digits(std::string_view text) {
  return all(text, is_digit);
}
bool all_numeric(std::string_view text) {
  return all(text, unicode::is_numeric);
}
bool all_letters(std::string_view text) {
  return all(text, is_letter);
}
bool all_alphanumeric(std::string_view text) {
  return all(text, [](char32_t code) { return is_letter(code) || unicode::is_numeric(code); });
}
bool all_space(std::string_view text) {
  return all(text, is_python_space);
}
bool is_upper_text(std::string_view text) {
  return cased_as(text, Case::upper);
}
bool is_lower_text(std::string_view text) {
  return cased_as(text, Case::lower);
}

bool is_title_text(std::string_view text) {
  bool any = false, after_cased = false;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    const Case found = case_of(c.code);
    if (found == Case::lower ? !after_cased : found != Case::none && after_cased) return false;
    after_cased = found != Case::none;
    any |= after_cased;
    text.remove_prefix(c.bytes);
  }
  return any;
}

}  // namespace medley::jinja
