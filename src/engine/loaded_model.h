// A model with its weights where it runs, and what it keeps alive: the part of an engine that loading makes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "medley/engine.h"
#include "models/model.h"
#include "models/model_source.h"
#include "weights/checkpoint.h"

namespace medley {

struct LoadedModel {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  bool mtp = false;  // the module for multi-token prediction is there too
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Communicator> comm;
  std::shared_ptr<const Checkpoint> checkpoint;  // none with random weights
  std::unique_ptr<Model> model;
  std::vector<std::string> kernels;  // which were chosen

  std::string backend() const;  // "cpu", or "cuda (NVIDIA H200)"
};

// With EngineOptions::random_weights the source need not have weights.
LoadedModel load_model(const ModelSource& source, const EngineOptions& options);

}  // namespace medley
