// UTF-8 and the few character classes that tokenizers ask for. Everything past this header may assume valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace medley::unicode {

struct Char {
  char32_t code = 0;
  uint32_t bytes = 0;  // bytes consumed, at least 1
  bool valid =
      false;  // when false: `bytes` is the longest prefix of a valid sequence (or 1), to be shown as one U+FFFD
};

// Reads the character at the front of `text`, which must not be empty.
Char next_wide(std::string_view text);
inline Char next(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  return lead < 0x80 ? Char{lead, 1, true} : next_wide(text);
}
// Of text known to be valid UTF-8.
inline uint32_t length_of(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}
void append(std::string& out, char32_t code);
std::string encoded(char32_t code);

bool is_valid(std::string_view text);
bool is_ascii(std::string_view text);

// Invalid bytes become U+FFFD, one for each longest prefix of a valid sequence: what Python's
// bytes.decode(errors="replace") and Rust's from_utf8_lossy do.
std::string repaired(std::string_view text);

// The number of bytes at the end of `text` that may still become one character (0 to 3). Bytes before it are decided.
size_t incomplete_tail(std::string_view text);

size_t count(std::string_view text);  // characters of valid UTF-8

bool is_white_space(char32_t code);  // the property White_Space
bool is_numeric(char32_t code);      // category N, as the tokenizers package has it
bool is_punctuation(char32_t code);  // category P, or ASCII punctuation; likewise
bool is_mark(char32_t code);         // category M
char32_t lower(char32_t code);       // simple mapping
char32_t upper(char32_t code);

std::string_view strip_left(std::string_view text);   // of white space
std::string_view strip_right(std::string_view text);  // of white space

}  // namespace medley::unicode
