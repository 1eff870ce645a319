#include "engine/engine_core.h"

#include <exception>

namespace medley {

std::optional<std::string> EngineCore::add(Request request) {
  if (std::string problem = request.sampling.problem(info().vocab_size); !problem.empty()) return problem;
  for (const int32_t id : request.prompt)
    if (id < 0 || id >= info().vocab_size)
      return fmt::format("prompt token {} is outside the vocabulary of {}", id, info().vocab_size);
  return scheduler_->add(std::move(request));
}

// The sampler keeps a state per slot (penalties, tokens written). A slot that changed hands since its owner's last step
// is started anew with what the request has written so far, which is also how a preempted request resumes.
StepResult EngineCore::sample(const StepPlan& plan, const StepLogits& logits) {
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const auto slot = size_t(row.sampling_slot);
    if (slot_owner_[slot] != row.request) {
      const Request& request = *scheduler_->find(row.request);
      sampler_->start(row.sampling_slot, request.sampling, request.prompt, request.outputs);
      slot_owner_[slot] = row.request;
    }
    if (row.sample) rows.push_back({row.request, row.sampling_slot, logits.rows[i].first + logits.rows[i].count - 1});
  }
  StepResult result{plan.step, rows.empty() ? std::vector<Sampled>() : sampler_->sample(logits.logits, rows)};
  std::erase_if(result.sampled, [&](const Sampled& sampled) {
    if (sampled.error.empty()) return false;
    errors_[sampled.request] = sampled.error;
    scheduler_->end(sampled.request, FinishReason::error);
    return true;
  });
  return result;
}

void EngineCore::fail_step(const StepPlan& plan, const std::string& why) {
  for (const PlanRow& row : plan.rows) {
    errors_[row.request] = why;
    scheduler_->end(row.request, FinishReason::error);
  }
  scheduler_->finish({plan.step, {}});
}

void EngineCore::step(const StepObserver& observer) {
  const StepPlan plan = scheduler_->schedule();
  if (!plan.empty()) {
    std::optional<StepResult> result;  // none: the step failed
    try {
      const StepLogits logits = runner_->run(plan);
      result = sample(plan, logits);
      if (observer.on_logits) observer.on_logits(plan, logits);
    } catch (const std::exception& error) {
      fail_step(plan, error.what());
      result.reset();
    }
    if (result) scheduler_->finish(*result);
    for (const Sampled& sampled : result ? result->sampled : std::vector<Sampled>())
      if (observer.on_token && observer.on_token(sampled)) scheduler_->end(sampled.request, FinishReason::stop);
  }
  for (const Request& request : scheduler_->take_finished()) {
    const auto error = errors_.find(request.id);
    if (observer.on_finish) observer.on_finish(request, error == errors_.end() ? "" : error->second);
    if (error != errors_.end()) errors_.erase(error);
    for (RequestId& owner : slot_owner_)
      if (owner == request.id) owner = 0;  // ids may come again
  }
#ifndef NDEBUG
  if (!has_work()) {
    const std::string wrong = check_integrity();
    if (!wrong.empty()) fail("medley bug: {}", wrong);
  }
#endif
}

}  // namespace medley
