#include "engine/loaded_model.h"

#include <nlohmann/json.hpp>

#include "engine/backend.h"
#include "models/registry.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

Level highest_level(const std::string& name, Device device) {
  if (name.empty()) return Level::sm90;
  std::string known;
  for (const Level level : {Level::ref, Level::simd, Level::avx512, Level::cuda, Level::sm90}) {
    if (device_of(level) != device) continue;
    if (name == name_of(level)) return level;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(level));
  }
  fail("kernels \"{}\" are not known on backend {}; there are {}", name, name_of(device), known);
}

// "auto": bf16 unless the config says that the weights are float32.
DType choose_dtype(const std::string& wanted, const nlohmann::json& config) {
  if (wanted == "f32") return DType::f32;
  if (wanted == "bf16") return DType::bf16;
  if (wanted != "auto") fail("dtype \"{}\" is not known; use auto, f32 or bf16", wanted);
  for (const char* field : {"dtype", "torch_dtype"})
    if (config.contains(field) && config[field] == "float32") return DType::f32;
  return DType::bf16;
}

}  // namespace

std::string LoadedModel::backend() const {
  if (device == Device::cpu) return "cpu";
  return fmt::format("{} ({})", name_of(device), device_info().name);
}

LoadedModel load_model(const std::filesystem::path& path, const EngineOptions& options) {
  const bool random_weights = options.random_weights;
  if (!random_weights && !std::filesystem::is_directory(path))
    fail("{}: {}; a folder with config.json and model.safetensors is wanted", path.string(),
         std::filesystem::exists(path) ? "is not a folder" : "is not there");
  LoadedModel loaded;
  const nlohmann::json config = read_config(path);
  const std::filesystem::path origin = std::filesystem::is_directory(path) ? path / "config.json" : path;
  loaded.model = make_model(config, origin.string());
  loaded.device = choose_device(options.backend);
  loaded.dtype = choose_dtype(options.dtype, config);
  loaded.threads = std::make_unique<ThreadPool>(options.threads);
  loaded.comm = make_self_comm();
  if (!random_weights) loaded.checkpoint = std::make_unique<Checkpoint>(path);

  WeightLoader weights =
      random_weights ? WeightLoader::random({}) : WeightLoader(*loaded.checkpoint, {}, options.progress);
  KernelSelector kernels(loaded.device, highest_level(options.kernels, loaded.device));
  LoadContext context{weights, kernels, *loaded.comm, *loaded.threads, loaded.dtype, options.reproducible};
  loaded.model->load(context, {});
  if (context.uploader) context.uploader->finish();
  weights.finish();
  loaded.kernels = kernels.chosen();
  return loaded;
}

}  // namespace medley
