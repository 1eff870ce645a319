// What a kernel runs on.
#pragma once

#include "base/thread_pool.h"
#include "tensor/workspace.h"

namespace medley {

struct ExecContext {
  ThreadPool& threads;
  Workspace& workspace;    // activations on the device; layers allocate from it inside a Scope
  void* stream = nullptr;  // cudaStream_t on a GPU
};

}  // namespace medley
