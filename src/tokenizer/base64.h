// Bytes inside JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace medley {

// With or without padding at the end; nothing for any other character.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace medley
