// What a kernel runs on.
#pragma once

#include "base/thread_pool.h"
#include "tensor/device_memory.h"
#include "tensor/workspace.h"

namespace medley {

// Work of more tokens than this fills a device by itself.
constexpr int64_t most_tokens_beside = 256;

// A second queue of a device, for work of a layer that its other work does not wait for.
struct SideBranch {
  explicit SideBranch(Device device) : workspace(device), stream(device), forked(device), done(device) {}
  Workspace workspace;
  Stream stream;
  StreamMark forked, done;
  bool pending = false;  // forked and not joined
};

struct ExecContext {
  ThreadPool& threads;
  Workspace& workspace;          // activations on the device; layers allocate from it inside a Scope
  void* stream = nullptr;        // cudaStream_t on a GPU
  SideBranch* branch = nullptr;  // none: everything runs in order

  // Puts what `work` does, in a context of its own, beside what comes next here; join() before anybody reads what it
  // made, and before what it reads goes.
  template <class Work>
  void fork(Work&& work) {
    if (branch == nullptr) return work(*this);
    join();  // a step that failed may have left one
    branch->forked.record(stream);
    branch->forked.hold(branch->stream.get());
    ExecContext side{threads, branch->workspace, branch->stream.get()};
    work(side);
    branch->done.record(branch->stream.get());
    branch->pending = true;
  }
  void join() {
    if (branch == nullptr || !branch->pending) return;
    branch->done.hold(stream);
    branch->pending = false;
  }
};

}  // namespace medley
