#include "cli/interrupt.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <thread>

#include "cli/command.h"

namespace medley::cli {
namespace {

struct Watch {
  std::mutex mutex;
  std::function<void()> stop;  // empty: nothing to end politely
  bool interrupted = false;
};

// Never destroyed: its thread outlives main.
Watch& watch() {
  static auto* the_watch = new Watch;
  return *the_watch;
}

void wait_for_signals(sigset_t signals) {
  for (int signal = 0; sigwait(&signals, &signal) == 0;) {
    const std::lock_guard lock(watch().mutex);
    if (!watch().stop || watch().interrupted) _exit(interrupted);
    watch().interrupted = true;
    watch().stop();
  }
}

}  // namespace

void watch_interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // threads made later inherit it
  watch();
  std::thread(wait_for_signals, signals).detach();
}

InterruptScope::InterruptScope(std::function<void()> stop) {
  const std::lock_guard lock(watch().mutex);
  watch().stop = std::move(stop);
  watch().interrupted = false;
}

InterruptScope::~InterruptScope() {
  const std::lock_guard lock(watch().mutex);
  watch().stop = nullptr;
}

bool InterruptScope::interrupted() const {
  const std::lock_guard lock(watch().mutex);
  return watch().interrupted;
}

}  // namespace medley::cli
