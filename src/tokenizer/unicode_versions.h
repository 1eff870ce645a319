// The tokenizers package, PCRE2 and utf8proc each come with some version of Unicode. A character that is a letter to
// one and unassigned to another would make other tokens: this evens the differences out (tools/make_unicode_tables.py).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace medley::unicode {

// Characters newer than PCRE2's data look to it like an older character of the same category and length, so that what
// matches, and where, is right. Most text has none.
bool needs_stand_ins(std::string_view text);
std::string with_stand_ins(std::string_view text);

bool has_no_normal_form(char32_t code);                     // normal forms leave it alone
std::optional<bool> punctuation_by_package(char32_t code);  // where it differs from utf8proc
std::optional<bool> numeric_by_package(char32_t code);

}  // namespace medley::unicode
