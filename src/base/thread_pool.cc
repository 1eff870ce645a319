#include "base/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace medley {
namespace {

thread_local int inside_worker = -1;  // >= 0 while this thread runs a task: nested calls stay inline

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// A decode step has hundreds of short parallel regions; waking a sleeping thread costs more than most of them, so
// workers spin a while (about 20 us) before they sleep.
constexpr int spin_rounds = 2000;

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stop{false};

  const std::function<void(int64_t, int)>* body = nullptr;
  int64_t tasks = 0;
  std::atomic<int64_t> next{0};
  std::atomic<int> busy{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void drain(int worker) {
    inside_worker = worker;
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      try {
        (*body)(task, worker);
      } catch (...) {
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(tasks, std::memory_order_relaxed);
      }
    }
    inside_worker = -1;
  }

  void work(int worker) {
    uint64_t seen = 0;
    for (;;) {
      int rounds = 0;
      while (generation.load(std::memory_order_acquire) == seen && !stop.load(std::memory_order_relaxed)) {
        if (++rounds < spin_rounds) {
          pause();
          continue;
        }
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen || stop.load(); });
      }
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      drain(worker);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  if (threads <= 0) threads = std::max(1u, std::thread::hardware_concurrency());
  for (int worker = 1; worker < threads; ++worker) impl_->threads.emplace_back([this, worker] { impl_->work(worker); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_all();
  for (auto& thread : impl_->threads) thread.join();
}

int ThreadPool::size() const {
  return int(impl_->threads.size()) + 1;
}

void ThreadPool::parallel_for(int64_t tasks, const std::function<void(int64_t, int)>& body) {
  if (tasks <= 0) return;
  if (inside_worker >= 0 || tasks == 1 || impl_->threads.empty()) {
    const int worker = std::max(inside_worker, 0);
    for (int64_t task = 0; task < tasks; ++task) body(task, worker);
    return;
  }
  Impl& pool = *impl_;
  pool.body = &body;
  pool.tasks = tasks;
  pool.next.store(0, std::memory_order_relaxed);
  pool.busy.store(int(pool.threads.size()), std::memory_order_relaxed);
  {
    std::lock_guard lock(pool.mutex);
    pool.generation.fetch_add(1, std::memory_order_release);
  }
  pool.wake.notify_all();
  pool.drain(0);
  for (int rounds = 0; pool.busy.load(std::memory_order_acquire) != 0; ++rounds) {
    if (rounds < spin_rounds) {
      pause();
    } else {
      std::this_thread::yield();  // more threads than processors: let the one we wait for run
    }
  }
  if (pool.error) std::rethrow_exception(std::exchange(pool.error, nullptr));
}

}  // namespace medley
