#include "tokenizer/base64.h"

#include <cstdint>

namespace medley {

std::optional<std::string> from_base64(std::string_view text) {
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (value < 0) return std::nullopt;
    bits = bits << 6 | uint32_t(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += char(bits >> count & 0xff);
  }
  return out;
}

}  // namespace medley
