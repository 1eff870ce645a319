// What Python's strings can do, by character and not by byte. Shared by methods and filters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace medley::jinja {

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string capitalized(std::string_view text);
std::string titled(std::string_view text);  // str.title

enum class Side { left = 1, right = 2, both = 3 };
// Without `chars`, white space as Python sees it (which includes U+001C to U+001F).
std::string_view stripped(std::string_view text, Side side);
std::string_view stripped(std::string_view text, Side side, std::string_view chars);

std::vector<std::string> split_on_space(std::string_view text, int64_t max_splits);  // max < 0: all
std::vector<std::string> rsplit_on_space(std::string_view text, int64_t max_splits);
std::vector<std::string> split_on(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string> rsplit_on(std::string_view text, std::string_view separator, int64_t max_splits);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends = false);
// The first `count` (all if negative) occurrences.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count);
std::string padded(std::string_view text, int64_t width, Side where, std::string_view fill);  // where the fill goes

bool is_python_space(char32_t code);

// str.isdigit and its kind: false for empty text.
bool all_digits(std::string_view text);
bool all_decimals(std::string_view text);
bool all_numeric(std::string_view text);
bool all_letters(std::string_view text);
bool all_alphanumeric(std::string_view text);
bool all_space(std::string_view text);
bool is_upper_text(std::string_view text);
bool is_lower_text(std::string_view text);
bool is_title_text(std::string_view text);

std::string html_escaped(std::string_view text);

}  // namespace medley::jinja
