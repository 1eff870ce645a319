// Errors of loading and of requests, with messages written for the person who must act on them.
//
// Start-up (loading a checkpoint, reading a config) throws Error: nothing can go on without it. What is expected to
// fail in a running engine (a request that cannot fit, a pool that is full) is a return value, never an exception.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace medley {

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

// Throws Error with a formatted message: what was wrong, where (file, tensor, field), what would work.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}

// A broken invariant of medley itself (never the user's fault). On in every build: it guards memory.
#define MEDLEY_CHECK(expression) \
  ((expression) ? void(0) : ::medley::detail::check_failed(#expression, __FILE__, __LINE__))

}  // namespace medley
