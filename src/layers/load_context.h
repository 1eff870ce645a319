// What a layer needs to take its weights and choose its kernels.
#pragma once

#include <map>
#include <memory>

#include "comm/communicator.h"
#include "kernels/op.h"
#include "tensor/uploader.h"
#include "weights/weight_loader.h"

namespace medley {

struct PackedMatrices;

struct LoadContext {
  WeightLoader& weights;
  KernelSelector& kernels;
  Communicator& comm;
  ThreadPool& threads;
  DType dtype = DType::f32;    // --dtype: inputs of matrix products, and the cache
  bool reproducible = false;   // one arithmetic path per layer kind, whatever the chunking
  bool later_ties = false;     // of index_select
  bool int8 = false;           // --activations int8: what block weights multiply is quantised (block_int8.h)
  bool expand_blocks = false;  // --blocks expand: weights in blocks are packed as `dtype`
  // By the stored parts they hold: layers that share weights share the packed matrix.
  std::map<std::string, std::shared_ptr<const PackedMatrices>> packed{};
  // Made when the first matrix goes to the device. What it was given is there once its finish() returns.
  std::shared_ptr<Uploader> uploader{};

  Shard shard() const { return weights.shard(); }
};

}  // namespace medley
