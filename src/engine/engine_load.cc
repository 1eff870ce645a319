// From a model's path to a running EngineCore: config, weights, the cache's size.
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "engine/engine_core.h"
#include "engine/generation_config.h"
#include "models/model_source.h"
#include "runner/device_sampler.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

int64_t available_memory(Device device) {
  if (device == Device::cuda) return int64_t(device_info().free_bytes);
  std::ifstream meminfo("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  while (meminfo >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return int64_t(1) << 32;  // no /proc: a modest guess
}

// Room for max_running requests of the model's length (8192 tokens at most), but no more than a share of the memory
// that is free once the weights are there: on the host a quarter (pages nobody uses are never touched), on a device
// nine tenths (the rest is for activations).
int64_t useful_cache_bytes(const Model& model, const EngineOptions& options, Device device) {
  int64_t per_token = 0, per_request = 0;
  for (const KvCacheSpec& spec : model.cache_specs()) {
    per_token += spec.bytes_per_token();
    per_request += spec.bytes_per_request();
  }
  const int64_t positions = model.info().max_positions;
  const int64_t length = std::min<int64_t>(positions > 0 ? positions : 8192, 8192);
  const int64_t wanted = options.max_running * (per_token * (length + 64) + per_request);
  const int64_t available = available_memory(device);
  const int64_t most = device == Device::cpu ? available / 4 : available / 10 * 9;
  return std::max<int64_t>(std::min(wanted + wanted / 8, most), int64_t(1) << 20);
}

}  // namespace

std::vector<int32_t> read_eos_ids(const ModelSource& source, const ModelInfo& info) {
  const nlohmann::json generation = source.generation_config();
  const auto eos = generation.find("eos_token_id");
  if (eos == generation.end() || eos->is_null()) return info.eos_ids;
  std::vector<int32_t> ids;
  for (const auto& id : eos->is_array() ? *eos : nlohmann::json::array({*eos})) {
    if (!id.is_number_integer())
      fail("{}: eos_token_id is {}, want a number or a list of them", source.generation_origin(), eos->dump());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::unique_ptr<EngineCore> EngineCore::load(const std::filesystem::path& path, const EngineOptions& options,
                                             int64_t max_chunk) {
  return load(*open_model(path), options, max_chunk);
}

std::unique_ptr<EngineCore> EngineCore::load(const ModelSource& source, const EngineOptions& options,
                                             int64_t max_chunk) {
  std::unique_ptr<EngineCore> core(new EngineCore);
  core->loaded_ = load_model(source, options);
  Model& model = *core->loaded_.model;
  core->eos_ids_ = read_eos_ids(source, model.info());

  const std::vector<KvCacheSpec>& specs = model.cache_specs();
  const int64_t bytes =
      options.memory > 0 ? int64_t(options.memory) : useful_cache_bytes(model, options, core->loaded_.device);
  core->arena_ = std::make_unique<Arena>(plan_arena(bytes, specs));
  const SchedulerConfig scheduling{.max_batched_tokens = options.max_batched_tokens,
                                   .max_running = options.max_running,
                                   .max_chunk = max_chunk,
                                   .max_model_len = model.info().max_positions,
                                   .eos_token_ids = core->eos_ids_};
  core->cache_ = std::make_unique<KvCacheCoordinator>(specs, *core->arena_, scheduling.max_step_tokens());
  core->scheduler_ = std::make_unique<Scheduler>(scheduling, *core->cache_);
  core->runner_ = std::make_unique<ModelRunner>(model, core->arena_->geometry(), *core->loaded_.threads,
                                                core->loaded_.device, options.graphs);
  const Device device = core->loaded_.device;
  core->sampler_ = make_sampler(device, model.info().vocab_size, options.max_running, *core->loaded_.threads,
                                core->runner_->stream());
  core->overlap_ = options.overlap.value_or(device != Device::cpu);
  core->slot_owner_.assign(size_t(options.max_running), 0);
  return core;
}

}  // namespace medley
