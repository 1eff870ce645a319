// The loop that joins scheduler, runner and sampler: one call of step() is one step. Single-threaded; it knows token
// ids, no text. engine.cc puts a thread and text around it, `medley logits` drives it as it is.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/coordinator.h"
#include "engine/loaded_model.h"
#include "runner/model_runner.h"
#include "sampling/sampler.h"
#include "scheduler/scheduler.h"

namespace medley {

// What happens in a step, told in this order. Each may be empty.
struct StepObserver {
  std::function<void(const StepPlan&, const StepLogits&)> on_logits;
  // A token was chosen. True ends the request here (a stop string in its text).
  std::function<bool(const Sampled&)> on_token;
  // The request ended; `error` says why when its reason is FinishReason::error.
  std::function<void(const Request&, const std::string& error)> on_finish;
};

class EngineCore {
 public:
  // max_chunk: tokens of one request in one step (0: as many as the budget allows).
  static std::unique_ptr<EngineCore> load(const std::filesystem::path& model, const EngineOptions& options,
                                          int64_t max_chunk = 0);

  // Queues a request, or says why it can never run.
  [[nodiscard]] std::optional<std::string> add(Request request);
  bool cancel(RequestId request) { return scheduler_->cancel(request); }
  bool has_work() const { return scheduler_->has_work(); }
  void step(const StepObserver& observer);

  const ModelInfo& info() const { return loaded_.model->info(); }
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  DType dtype() const { return loaded_.dtype; }
  std::string backend() const { return loaded_.backend(); }
  const ModelRunner& runner() const { return *runner_; }
  const std::vector<std::string>& kernels() const { return loaded_.kernels; }
  const Scheduler& scheduler() const { return *scheduler_; }
  CacheUsage cache_usage() const { return cache_->usage(); }
  std::string check_integrity() const { return scheduler_->check_integrity(); }

 private:
  EngineCore() = default;
  StepResult sample(const StepPlan& plan, const StepLogits& logits);
  void fail_step(const StepPlan& plan, const std::string& why);

  LoadedModel loaded_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<KvCacheCoordinator> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Sampler> sampler_;
  std::vector<int32_t> eos_ids_;
  std::vector<RequestId> slot_owner_;  // whose state the sampler has in a slot
  std::unordered_map<RequestId, std::string> errors_;
};

}  // namespace medley
