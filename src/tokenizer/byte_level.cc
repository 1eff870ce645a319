#include "tokenizer/byte_level.h"

#include <array>

#include "tokenizer/unicode.h"

namespace medley::byte_level {
namespace {

// Printable bytes of Latin-1 stand for themselves; the other 68 take the codes from U+0100 on, in order.
constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr int alphabet_end = 0x144;

struct Tables {
  std::array<char16_t, 256> char_of{};
  std::array<int16_t, alphabet_end> byte_of{};
};

constexpr Tables make_tables() {
  Tables t;
  for (auto& byte : t.byte_of) byte = -1;
  char16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    t.char_of[byte] = stands_for_itself(byte) ? char16_t(byte) : next++;
    t.byte_of[t.char_of[byte]] = int16_t(byte);
  }
  return t;
}

constexpr Tables tables = make_tables();

}  // namespace

std::string encoded(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) unicode::append(out, tables.char_of[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    if (!c.valid || c.code >= alphabet_end || tables.byte_of[c.code] < 0) return std::nullopt;
    out += char(tables.byte_of[c.code]);
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace medley::byte_level
