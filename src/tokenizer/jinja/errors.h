// A template that cannot go on. Caught where rendering starts, and turned into a message with template and line.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace medley::jinja {

struct TemplateError : std::runtime_error {
  explicit TemplateError(const std::string& message, int at_line = 0) : std::runtime_error(message), line(at_line) {}
  int line;  // 0: not known yet; the innermost statement fills it in
};

template <class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace medley::jinja
