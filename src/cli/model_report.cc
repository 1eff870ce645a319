#include "cli/model_report.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "cache/coordinator.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace medley::cli {
namespace {

// The input embedding is the first tensor of shape [vocab_size, hidden_size]; taken twice, it is tied: the head too.
ParameterCounts count(const std::vector<TakenWeight>& taken, const ModelInfo& info) {
  struct Tensor {
    double elements = 0, active = 0;
    bool mtp = false;
    int times = 0;
  };
  std::map<std::string, Tensor> tensors;
  std::string embedding;
  for (const TakenWeight& weight : taken) {
    double elements = 1;
    for (const int64_t size : weight.shape) elements *= double(size);
    Tensor& tensor = tensors[weight.name];
    tensor = {elements, elements * weight.active, weight.mtp, tensor.times + 1};
    if (embedding.empty() && weight.shape == std::vector<int64_t>{info.vocab_size, info.hidden_size})
      embedding = weight.name;
  }
  double total = 0, active = 0, mtp_total = 0, mtp_active = 0;  // exact far beyond any model's size
  for (const auto& [name, tensor] : tensors) {
    (tensor.mtp ? mtp_total : total) += tensor.elements;
    (tensor.mtp ? mtp_active : active) += tensor.active;
  }
  const auto at = tensors.find(embedding);
  const double lookup = at != tensors.end() && at->second.times == 1 ? at->second.elements : 0;
  return {std::llround(total), std::llround(active), std::llround(active - lookup), std::llround(mtp_total),
          std::llround(mtp_active)};
}

CacheRoom room_in(uint64_t memory, const std::vector<KvCacheSpec>& specs, int64_t request_tokens) {
  constexpr int64_t step_tokens = 512;  // what medley run computes of one request in a step
  CacheRoom room{.memory = memory, .request_tokens = request_tokens};
  Arena arena(plan_arena(int64_t(memory), specs));
  const KvCacheCoordinator cache(specs, arena, step_tokens);
  room.requests = cache.most_requests(request_tokens);
  constexpr int64_t endless = int64_t(1) << 40;
  const CacheFit fit = cache.can_ever_fit(endless);
  if (bytes_per_token(specs) > 0 && !fit.fits()) room.tokens = fit.most_tokens;
  return room;
}

std::optional<StoredWeights> stored_weights(const std::filesystem::path& folder,
                                            const std::vector<TakenWeight>& taken) {
  if (!std::filesystem::exists(folder / "model.safetensors") &&
      !std::filesystem::exists(folder / "model.safetensors.index.json"))
    return std::nullopt;
  const Checkpoint checkpoint(folder);
  StoredWeights stored{.bytes = checkpoint.total_bytes()};
  for (const TakenWeight& weight : taken) stored.has_mtp |= weight.mtp && checkpoint.find(weight.name) != nullptr;
  return stored;
}

}  // namespace

int64_t bytes_per_token(const std::vector<KvCacheSpec>& specs) {
  int64_t bytes = 0;
  for (const KvCacheSpec& spec : specs) bytes += spec.bytes_per_token();
  return bytes;
}

int64_t bytes_per_request(const std::vector<KvCacheSpec>& specs) {
  int64_t bytes = 0;
  for (const KvCacheSpec& spec : specs) bytes += spec.bytes_per_request();
  return bytes;
}

ModelReport make_report(const std::filesystem::path& path, const ReportOptions& options) {
  if (!std::filesystem::exists(path))
    fail("{}: is not there; a checkpoint's folder or a config.json is wanted", path.string());
  const bool folder = std::filesystem::is_directory(path);
  ModelReport report;
  report.origin = (folder ? path / "config.json" : path).string();
  report.dtype = options.dtype;
  report.backend = name_of(options.device);
  const std::unique_ptr<Model> model = make_model(read_config(path), report.origin);
  WeightLoader weights{Shard{}};
  KernelSelector kernels(options.device);
  const std::unique_ptr<Communicator> comm = make_self_comm();
  ThreadPool threads(1);
  LoadContext context{weights, kernels, *comm, threads, options.dtype, false};
  model->load(context, {});
  report.info = model->info();
  report.parameters = count(weights.taken(), report.info);
  report.cache = model->cache_specs();
  report.mtp_cache = model->mtp_cache_specs();
  report.room = room_in(options.memory, report.cache, options.request_tokens);
  report.kernels = kernels.chosen();
  if (folder) report.stored = stored_weights(path, weights.taken());
  return report;
}

}  // namespace medley::cli
