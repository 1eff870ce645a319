#include "base/mapped_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace medley::mapped_guard {
namespace {

// The handler may run at any moment in any thread: it reads atomics of a table that never moves, and takes no lock.
struct Mapping {
  std::atomic<uintptr_t> begin{0}, end{0};  // begin 0: free
  std::atomic<bool> damaged{false};
};
std::array<Mapping, 4096> mappings;  // the largest published checkpoints have some 200 files
std::mutex entering;                 // of those who change the table
struct sigaction before;
size_t page_bytes;

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // is delivered when the handler returns
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Mapping& mapping : mappings) {
    const uintptr_t begin = mapping.begin.load(std::memory_order_acquire), end = mapping.end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    mapping.damaged.store(true);
    const uintptr_t page = address / page_bytes * page_bytes;
    void* const zeros =
        ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros != MAP_FAILED) return;
  }
  pass_on(signal, info, context);
}

void install() {
  page_bytes = size_t(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &before);
}

}  // namespace

int add(const std::byte* begin, size_t bytes) {
  const std::lock_guard lock(entering);
  static const bool installed = (install(), true);
  static_cast<void>(installed);
  for (size_t i = 0; i < mappings.size(); ++i) {
    Mapping& mapping = mappings[i];
    if (mapping.begin.load() != 0) continue;
    mapping.damaged.store(false);
    mapping.end.store(reinterpret_cast<uintptr_t>(begin) + bytes);
    mapping.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    return int(i);
  }
  return -1;
}

void remove(int guard) {
  if (guard >= 0) mappings[size_t(guard)].begin.store(0);
}

bool damaged(int guard) {
  return guard >= 0 && mappings[size_t(guard)].damaged.load();
}

}  // namespace medley::mapped_guard
