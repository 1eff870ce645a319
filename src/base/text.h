// Numbers and lists as a person reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

std::string with_commas(int64_t value);                                // 70272 -> "70,272"
std::string human_bytes(uint64_t bytes);                               // 1536 -> "1.5 KiB"
std::optional<uint64_t> parse_bytes(std::string_view text);            // "8", "512M", "4G", "1.5GiB" (powers of 1024)
std::optional<std::vector<int32_t>> parse_ids(std::string_view text);  // "1,2,3"
std::string join(const std::vector<std::string>& parts, std::string_view separator);

}  // namespace medley
