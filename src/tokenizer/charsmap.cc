#include "tokenizer/charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace medley {

Charsmap::Charsmap(std::string_view data, const std::string& where) {
  uint32_t bytes = 0;
  if (data.size() < sizeof(bytes)) fail("{}: {} bytes are no character map", where, data.size());
  std::memcpy(&bytes, data.data(), sizeof(bytes));
  data.remove_prefix(sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > data.size())
    fail("{}: the character map's trie has {} bytes, of {}", where, bytes, data.size());
  units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(units_.data(), data.data(), bytes);
  replacements_ = data.substr(bytes);
  if (!unicode::is_valid(replacements_)) fail("{}: the character map's replacements are not UTF-8", where);
  replacements_ += '\0';
}

// The units are those of Darts-clone: bit 31 marks a value, bits 0-7 the byte that leads here, bit 8 that a value hangs
// below, bits 10-30 (times 256 with bit 9) the way to the children. An odd file leads out of the array, or would cut
// characters: no match.
Charsmap::Match Charsmap::find(std::string_view text, bool first) const {
  const auto offset = [](uint32_t unit) { return size_t(unit >> 10) << ((unit & (1u << 9)) >> 6); };
  const auto inside_character = [](std::string_view t, size_t i) {
    return i < t.size() && (static_cast<unsigned char>(t[i]) & 0xc0) == 0x80;
  };
  Match match;
  size_t node = offset(unit(0));
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    const uint32_t here = unit(node);
    if ((here & 0x800000ffu) != byte || byte == 0) break;
    node ^= offset(here);
    if ((here & 0x100u) == 0) continue;
    const size_t value = unit(node) & 0x7fffffffu;
    if (value >= replacements_.size() || inside_character(replacements_, value) || inside_character(text, at + 1))
      continue;
    match = {at + 1, std::string_view(replacements_.data() + value)};
    if (first) break;
  }
  return match;
}

namespace {

// The bytes of the first user-perceived character of `text`.
size_t grapheme_length(std::string_view text) {
  const auto ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  if (ascii(0) && (text.size() == 1 || (ascii(1) && !text.starts_with("\r\n")))) return 1;
  unicode::Char previous = unicode::next(text);
  size_t length = previous.bytes;
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const unicode::Char c = unicode::next(text.substr(length));
    if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(previous.code), utf8proc_int32_t(c.code), &state)) break;
    length += c.bytes;
    previous = c;
  }
  return length;
}

}  // namespace

void apply_by_grapheme(const Charsmap& charsmap, std::string& text) {
  constexpr size_t longest_whole = 5;
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view grapheme = rest.substr(0, grapheme_length(rest));
    rest.remove_prefix(grapheme.size());
    if (grapheme.size() <= longest_whole) {
      if (const auto whole = charsmap.shortest(grapheme); whole.bytes > 0) {
        out += whole.becomes;
        continue;
      }
    }
    while (!grapheme.empty()) {
      const std::string_view character = grapheme.substr(0, unicode::length_of(grapheme[0]));
      grapheme.remove_prefix(character.size());
      const auto match = charsmap.shortest(character);
      out += match.bytes > 0 ? match.becomes : character;
    }
  }
  text = std::move(out);
}

}  // namespace medley
