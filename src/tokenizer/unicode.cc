#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstring>

#include "tokenizer/unicode_versions.h"

namespace medley::unicode {

Char next_wide(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  // The range of the second byte rules out overlong forms, surrogates and codes past U+10FFFF (Unicode, table 3-7).
  unsigned low = 0x80, high = 0xbf, length = 0, code = 0;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2, code = lead & 0x1f;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3, code = lead & 0x0f;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4, code = lead & 0x07;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {0xfffd, 1, false};
  }
  for (unsigned i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {0xfffd, i, false};
    code = code << 6 | (byte(i) & 0x3f);
    low = 0x80, high = 0xbf;
  }
  return {code, length, true};
}

void append(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3f));
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  }
}

std::string encoded(char32_t code) {
  std::string out;
  append(out, code);
  return out;
}

namespace {

// Bytes at the front that are ASCII, eight at a time.
size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

bool is_ascii(std::string_view text) {
  return ascii_prefix(text) == text.size();
}

bool is_valid(std::string_view text) {
  for (;;) {
    text.remove_prefix(ascii_prefix(text));
    if (text.empty()) return true;
    while (!text.empty() && static_cast<unsigned char>(text[0]) >= 0x80) {
      const Char c = next(text);
      if (!c.valid) return false;
      text.remove_prefix(c.bytes);
    }
  }
}

std::string repaired(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  while (!text.empty()) {
    const Char c = next(text);
    if (c.valid)
      out.append(text.substr(0, c.bytes));
    else
      out += "\xef\xbf\xbd";
    text.remove_prefix(c.bytes);
  }
  return out;
}

size_t incomplete_tail(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) return 0;
    if (byte < 0xc0) continue;
    // A lead byte: incomplete if what follows is a proper prefix of its sequence and the text ends there.
    const Char c = next(text.substr(text.size() - back));
    const bool reaches_end = !c.valid && c.bytes == back;
    const bool can_lead = byte >= 0xc2 && byte <= 0xf4;
    return reaches_end && can_lead ? back : 0;
  }
  return 0;
}

size_t count(std::string_view text) {
  size_t n = 0;
  for (const char c : text) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  if (const auto known = numeric_by_package(c)) return *known;
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80) return std::strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", int(c)) != nullptr && c != 0;
  if (const auto known = punctuation_by_package(c)) return *known;
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t c) {
  if (c < 0x300) return false;
  const auto category = utf8proc_category(utf8proc_int32_t(c));
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

char32_t lower(char32_t c) {
  return char32_t(utf8proc_tolower(utf8proc_int32_t(c)));
}
char32_t upper(char32_t c) {
  return char32_t(utf8proc_toupper(utf8proc_int32_t(c)));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Char c = next(text);
    if (!is_white_space(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (!is_white_space(next(text.substr(at)).code)) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace medley::unicode
