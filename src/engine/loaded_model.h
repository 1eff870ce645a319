// A model with its weights where it runs, and what it keeps alive: the part of an engine that loading makes.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "medley/engine.h"
#include "models/model.h"
#include "weights/checkpoint.h"

namespace medley {

struct LoadedModel {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Communicator> comm;
  std::unique_ptr<Checkpoint> checkpoint;  // none with random weights
  std::unique_ptr<Model> model;
  std::vector<std::string> kernels;  // which were chosen

  std::string backend() const;  // "cpu", or "cuda (NVIDIA H200)"
};

// `path` is a checkpoint's folder; with EngineOptions::random_weights it may be a config.json.
LoadedModel load_model(const std::filesystem::path& path, const EngineOptions& options);

}  // namespace medley
