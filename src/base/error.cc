#include "base/error.h"

namespace medley::detail {

void check_failed(const char* expression, const char* file, int line) {
  throw std::logic_error(fmt::format("medley bug: {} does not hold ({}:{})", expression, file, line));
}

}  // namespace medley::detail
