#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace medley {

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 6) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, units[unit]);
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  std::string_view unit(end, size_t(text.data() + text.size() - end));
  int shift = 0;
  if (!unit.empty() && unit != "B") {
    const size_t at = std::string_view("KMGT").find(char(std::toupper(static_cast<unsigned char>(unit[0]))));
    if (at == std::string_view::npos) return std::nullopt;
    shift = 10 * int(at + 1);
    unit.remove_prefix(1);
    if (unit != "" && unit != "B" && unit != "iB") return std::nullopt;
  }
  const double bytes = std::ldexp(value, shift);
  if (!(bytes < 0x1p63)) return std::nullopt;
  return uint64_t(bytes);
}

std::optional<std::vector<int32_t>> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    while (at != end && *at == ' ') ++at;
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) return std::nullopt;
    ids.push_back(id);
    at = next;
    while (at != end && *at == ' ') ++at;
    if (at == end) return ids;
    if (*at++ != ',') return std::nullopt;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace medley
