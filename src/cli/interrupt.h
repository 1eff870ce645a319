// Ctrl-C, politely. The signal is taken by a thread that waits for it, not by a handler, so that it may call anything.
#pragma once

#include <functional>

namespace medley::cli {

// Call once, before any other thread starts.
void watch_interrupts();

// While one lives, the first Ctrl-C calls `stop`, on a thread of its own. A second one, or one while there is no
// InterruptScope, ends the process with exit code 130.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> stop);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool interrupted() const;
};

}  // namespace medley::cli
