// From a folder to a running EngineCore: config, weights, the cache's size.
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "engine/engine_core.h"
#include "engine/generation_config.h"
#include "models/registry.h"

namespace medley {
namespace {

Level highest_level(const std::string& name) {
  if (name.empty()) return Level::avx512;
  for (const Level level : {Level::ref, Level::simd, Level::avx512})
    if (name == name_of(level)) return level;
  fail("kernels \"{}\" are not known; medley has ref, simd and avx512", name);
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

int64_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  while (meminfo >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return int64_t(1) << 32;  // no /proc: a modest guess
}

// Room for max_running requests of the model's length (8192 tokens at most), but no more than a quarter of the memory
// that is free: pages nobody uses are never touched.
int64_t useful_cache_bytes(const Model& model, const EngineOptions& options) {
  int64_t per_token = 0, per_request = 0;
  for (const KvCacheSpec& spec : model.cache_specs()) {
    per_token += spec.bytes_per_token();
    per_request += spec.bytes_per_request();
  }
  const int64_t positions = model.info().max_positions;
  const int64_t length = std::min<int64_t>(positions > 0 ? positions : 8192, 8192);
  const int64_t wanted = options.max_running * (per_token * (length + 64) + per_request);
  return std::max<int64_t>(std::min(wanted + wanted / 8, available_memory() / 4), int64_t(1) << 20);
}

}  // namespace

std::vector<int32_t> read_eos_ids(const std::filesystem::path& folder, const ModelInfo& info) {
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return info.eos_ids;
  const nlohmann::json generation = read_json(path, JsonFloats::python);
  const auto eos = generation.find("eos_token_id");
  if (eos == generation.end() || eos->is_null()) return info.eos_ids;
  std::vector<int32_t> ids;
  for (const auto& id : eos->is_array() ? *eos : nlohmann::json::array({*eos})) {
    if (!id.is_number_integer())
      fail("{}: eos_token_id is {}, want a number or a list of them", path.string(), eos->dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::unique_ptr<EngineCore> EngineCore::load(const std::filesystem::path& path, const EngineOptions& options,
                                             int64_t max_chunk) {
  if (!std::filesystem::is_directory(path))
    fail("{}: {}; a folder with config.json and model.safetensors is wanted", path.string(),
         std::filesystem::exists(path) ? "is not a folder" : "is not there");
  std::unique_ptr<EngineCore> core(new EngineCore);
  const nlohmann::json config = read_config(path);
  core->model_ = make_model(config, (path / "config.json").string());
  core->dtype_ = choose_dtype(options.dtype, config);
  core->eos_ids_ = read_eos_ids(path, core->model_->info());
  core->threads_ = std::make_unique<ThreadPool>(options.threads);
  core->comm_ = make_self_comm();
  core->checkpoint_ = std::make_unique<Checkpoint>(path);

  WeightLoader weights(*core->checkpoint_, {}, options.progress);
  KernelSelector kernels(Device::cpu, highest_level(options.kernels));
  LoadContext context{weights, kernels, *core->comm_, *core->threads_, core->dtype_, options.reproducible};
  core->model_->load(context, {});
  weights.finish();
  core->kernels_ = kernels.chosen();

  const std::vector<KvCacheSpec>& specs = core->model_->cache_specs();
  const int64_t bytes = options.memory > 0 ? int64_t(options.memory) : useful_cache_bytes(*core->model_, options);
  core->arena_ = std::make_unique<Arena>(plan_arena(bytes, specs));
  const SchedulerConfig scheduling{.max_batched_tokens = options.max_batched_tokens,
                                   .max_running = options.max_running,
                                   .max_chunk = max_chunk,
                                   .max_model_len = core->model_->info().max_positions,
                                   .eos_token_ids = core->eos_ids_};
  core->cache_ = std::make_unique<KvCacheCoordinator>(specs, *core->arena_, scheduling.max_step_tokens());
  core->scheduler_ = std::make_unique<Scheduler>(scheduling, *core->cache_);
  core->runner_ = std::make_unique<ModelRunner>(*core->model_, core->arena_->geometry(), *core->threads_);
  core->sampler_ = std::make_unique<Sampler>(core->model_->info().vocab_size, *core->threads_);
  core->slot_owner_.assign(size_t(options.max_running), 0);
  return core;
}

}  // namespace medley
