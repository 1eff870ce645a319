// The engine's own threads. Work is cut into tasks by the caller; which thread runs a task never changes its result.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace medley {

class ThreadPool {
 public:
  // `threads` counts the calling thread: 1 runs everything inline. 0 takes the number of processors.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  // Runs body(task, worker) for every task in [0, tasks), worker in [0, size()), and returns when all are done.
  // Tasks are handed out one by one in ascending order. The first exception is rethrown here. One caller at a time;
  // a call from inside a task runs inline on that worker.
  void parallel_for(int64_t tasks, const std::function<void(int64_t task, int worker)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace medley
