#include "engine/loaded_model.h"

#include <algorithm>
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

// Does anything of the checkpoint lie in blocks? There need not be one.
bool has_blocks(const Checkpoint* checkpoint) {
  if (checkpoint == nullptr) return false;
  const auto& tensors = checkpoint->tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& named) { return is_block(named.second.tensor.view.dtype); });
}

bool wants_int8(const std::string& activations) {
  if (activations != "auto" && activations != "int8")
    fail("activations \"{}\" are not known; use auto or int8", activations);
  return activations == "int8";
}

// Are weights in blocks stored as the model's dtype? On a device they have to be.
bool expands_blocks(const std::string& blocks, Device device) {
  if (blocks == "auto") return device != Device::cpu;
  if (blocks != "keep" && blocks != "expand") fail("blocks \"{}\" are not known; use auto, keep or expand", blocks);
  if (blocks == "keep" && device != Device::cpu)
    fail("blocks keep: backend {} has no kernels that read blocks; use backend cpu, or blocks expand", name_of(device));
  return blocks == "expand";
}

void refuse_int8_on(Device device) {
  fail("activations int8: backend {} has no kernels for them; use backend cpu, or activations auto", name_of(device));
}

}  // namespace

std::string LoadedModel::backend() const {
  if (device == Device::cpu) return "cpu";
  return fmt::format("{} ({})", name_of(device), device_info().name);
}

LoadedModel load_model(const ModelSource& source, const EngineOptions& options) {
  const bool random_weights = options.random_weights;
  LoadedModel loaded;
  const nlohmann::json config = source.config();
  loaded.model = make_model(config, source.config_origin());
  const bool int8 = wants_int8(options.activations);
  if (int8 && options.backend == "cuda") refuse_int8_on(Device::cuda);
  loaded.device = choose_device(options.backend);
  if (int8 && loaded.device != Device::cpu) refuse_int8_on(loaded.device);
  const bool expand = expands_blocks(options.blocks, loaded.device);
  if (int8 && expand) fail("activations int8 need weights in blocks; use blocks keep, or activations auto");
  loaded.dtype = choose_dtype(options.dtype, config);
  loaded.mtp = options.mtp;
  loaded.threads = std::make_unique<ThreadPool>(options.threads);
  loaded.comm = make_self_comm();
  if (!random_weights) loaded.checkpoint = source.checkpoint();

  const std::string name = loaded.checkpoint != nullptr ? loaded.checkpoint->describe() : source.config_origin();
  if (int8 && !has_blocks(loaded.checkpoint.get()))
    fail(
        "activations int8 need weights that are quantised in blocks (q4_k, q8_0 and other types of GGUF files); {} "
        "has none, use activations auto",
        name);

  WeightLoader weights =
      random_weights ? WeightLoader::random({}) : WeightLoader(*loaded.checkpoint, {}, options.progress);
  KernelSelector kernels(loaded.device, highest_level(options.kernels, loaded.device));
  LoadContext context{
      weights, kernels, *loaded.comm, *loaded.threads, loaded.dtype, options.reproducible, options.later_ties,
      int8,    expand};
  loaded.model->load(context, {.mtp = options.mtp});
  if (context.uploader) context.uploader->finish();
  weights.finish();
  loaded.kernels = kernels.chosen();
  const auto takes_int8 = [](const std::string& kernel) { return kernel.find("_int8 ") != std::string::npos; };
  if (int8 && std::none_of(loaded.kernels.begin(), loaded.kernels.end(), takes_int8))
    fail("activations int8: no linear layer of {} has weights in blocks; use activations auto", name);
  return loaded;
}

}  // namespace medley
