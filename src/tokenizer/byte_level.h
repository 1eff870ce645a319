// The alphabet of byte-level vocabularies (GPT-2): each byte has one printable character, so that a vocabulary is text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace medley::byte_level {

std::string encoded(std::string_view bytes);  // bytes -> their characters
// Characters -> bytes; nothing when a character is not of the alphabet (an added token's content, say).
std::optional<std::string> decoded(std::string_view text);

// GPT-2's way of cutting text into words, as Split patterns write it.
inline constexpr const char* gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace medley::byte_level
