// What a layer needs to take its weights and choose its kernels.
#pragma once

#include "comm/communicator.h"
#include "kernels/op.h"
#include "weights/weight_loader.h"

namespace medley {

struct LoadContext {
  WeightLoader& weights;
  KernelSelector& kernels;
  Communicator& comm;
  ThreadPool& threads;
  DType dtype = DType::f32;   // --dtype: inputs of matrix products, and the cache
  bool reproducible = false;  // one arithmetic path per layer kind, whatever the chunking

  Shard shard() const { return weights.shard(); }
};

}  // namespace medley
