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

class ModelSource;

// What happens in a step, told in this order. Each may be empty.
struct StepObserver {
  // A step is under way: its requests hold their cache.
  std::function<void(const StepPlan&)> on_step;
  // Wanted only by who looks at logits: they come to the host for it, and steps follow one by one.
  std::function<void(const StepPlan&, const StepLogits&)> on_logits;
  // With EngineOptions::mtp: the first module's, for the same rows where the following token is known.
  std::function<void(const StepPlan&, const StepLogits&)> on_draft_logits;
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
  static std::unique_ptr<EngineCore> load(const ModelSource& model, const EngineOptions& options,
                                          int64_t max_chunk = 0);

  // Queues a request, or says why it can never run.
  [[nodiscard]] std::optional<std::string> add(Request request);
  bool cancel(RequestId request) { return scheduler_->cancel(request); }
  bool has_work() const { return scheduler_->has_work(); }
  // Finishes one step. On a device the next one is launched before, as far as it can be without knowing how this one
  // ends: its kernels take the tokens where the sampler puts them.
  void step(const StepObserver& observer);

  const ModelInfo& info() const { return loaded_.model->info(); }
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  DType dtype() const { return loaded_.dtype; }
  bool mtp() const { return loaded_.mtp; }
  std::string backend() const { return loaded_.backend(); }
  const ModelRunner& runner() const { return *runner_; }
  const std::vector<std::string>& kernels() const { return loaded_.kernels; }
  const Scheduler& scheduler() const { return *scheduler_; }
  CacheUsage cache_usage() const { return cache_->usage(); }
  std::string check_integrity() const { return scheduler_->check_integrity(); }

 private:
  EngineCore() = default;
  // A step that was launched and not yet finished.
  struct Flight {
    StepPlan plan;
    std::optional<std::string> failure;  // of the launch
  };
  Flight launch(StepPlan plan, const StepObserver& observer);
  std::optional<Flight> launch_ahead(const StepObserver& observer);
  void finish(const Flight& flight, const StepObserver& observer);
  void tell_finished(const StepObserver& observer);
  std::vector<SampleRow> rows_to_sample(const StepPlan& plan);
  StepResult collect(const StepPlan& plan);
  std::vector<int32_t> following_tokens(const StepPlan& plan, const StepResult& result) const;
  void fail_step(const StepPlan& plan, const std::string& why);

  LoadedModel loaded_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<KvCacheCoordinator> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Sampler> sampler_;
  bool overlap_ = false;
  std::optional<Flight> flight_;
  std::vector<int32_t> eos_ids_;
  std::vector<RequestId> slot_owner_;  // whose state the sampler has in a slot
  std::unordered_map<RequestId, std::string> errors_;
};

}  // namespace medley
