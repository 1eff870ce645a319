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
std::vector<SampleRow> EngineCore::rows_to_sample(const StepPlan& plan) {
  std::vector<SampleRow> rows;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const PlanRow& row = plan.rows[i];
    const auto slot = size_t(row.sampling_slot);
    if (slot_owner_[slot] != row.request) {
      const Request& request = *scheduler_->find(row.request);
      sampler_->start(row.sampling_slot, request.sampling, request.prompt, request.outputs);
      slot_owner_[slot] = row.request;
    }
    const RowLogits& logits = runner_->logits_rows()[i];
    if (row.sample) rows.push_back({row.request, row.sampling_slot, logits.first + logits.count - 1});
  }
  return rows;
}

StepResult EngineCore::collect(const StepPlan& plan) {
  StepResult result{plan.step, sampler_->collect()};
  std::erase_if(result.sampled, [&](const Sampled& sampled) {
    if (sampled.error.empty()) return false;
    if (scheduler_->find(sampled.request)->finish_reason == FinishReason::none)
      errors_[sampled.request] = sampled.error;
    scheduler_->end(sampled.request, FinishReason::error);
    return true;
  });
  return result;
}

// Of every row, the token after its last: the prompt's, or one written earlier and computed again, or the one just
// chosen. -1: the request asked for none.
std::vector<int32_t> EngineCore::following_tokens(const StepPlan& plan, const StepResult& result) const {
  std::vector<int32_t> tokens;
  auto sampled = result.sampled.begin();
  for (const PlanRow& row : plan.rows) {
    const Request& request = *scheduler_->find(row.request);
    const int64_t next = int64_t(row.computed) + row.new_tokens;
    tokens.push_back(next < request.num_tokens() ? request.token(next) : -1);
    if (sampled != result.sampled.end() && sampled->request == row.request) tokens.back() = (sampled++)->token;
  }
  return tokens;
}

void EngineCore::fail_step(const StepPlan& plan, const std::string& why) {
  for (const PlanRow& row : plan.rows) {
    if (scheduler_->find(row.request)->finish_reason == FinishReason::none) errors_[row.request] = why;
    scheduler_->end(row.request, FinishReason::error);
  }
  scheduler_->finish({plan.step, {}});
}

EngineCore::Flight EngineCore::launch(StepPlan plan, const StepObserver& observer) {
  Flight flight{std::move(plan), {}};
  try {
    runner_->start(flight.plan, sampler_->last_tokens());
    sampler_->launch(runner_->device_logits(), rows_to_sample(flight.plan));
  } catch (const std::exception& error) {
    flight.failure = error.what();
  }
  if (observer.on_step) observer.on_step(flight.plan);
  return flight;
}

// What looks at a step's results beyond its tokens needs them before the next step comes over them.
std::optional<EngineCore::Flight> EngineCore::launch_ahead(const StepObserver& observer) {
  if (!overlap_ || loaded_.mtp || observer.on_logits || flight_->failure || !sampler_->tokens_in_place()) return {};
  StepPlan plan = scheduler_->schedule_ahead();
  if (plan.empty()) return {};
  return launch(std::move(plan), observer);
}

void EngineCore::finish(const Flight& flight, const StepObserver& observer) {
  const StepPlan& plan = flight.plan;
  std::optional<StepResult> result;  // none: the step failed
  try {
    if (flight.failure) throw Error(*flight.failure);
    result = collect(plan);
    if (observer.on_logits) observer.on_logits(plan, runner_->host_logits());
    if (loaded_.mtp) {
      const StepLogits drafted = runner_->draft(plan, following_tokens(plan, *result));
      if (observer.on_draft_logits) observer.on_draft_logits(plan, drafted);
    }
  } catch (const std::exception& error) {
    return fail_step(plan, error.what());
  }
  for (const Sampled& sampled : scheduler_->finish(std::move(*result)))
    if (observer.on_token && observer.on_token(sampled)) scheduler_->end(sampled.request, FinishReason::stop);
}

void EngineCore::tell_finished(const StepObserver& observer) {
  for (const Request& request : scheduler_->take_finished()) {
    const auto error = errors_.find(request.id);
    if (observer.on_finish) observer.on_finish(request, error == errors_.end() ? "" : error->second);
    if (error != errors_.end()) errors_.erase(error);
    for (RequestId& owner : slot_owner_)
      if (owner == request.id) owner = 0;  // ids may come again
  }
}

void EngineCore::step(const StepObserver& observer) {
  if (!flight_) {
    StepPlan plan = scheduler_->schedule();
    if (!plan.empty()) flight_ = launch(std::move(plan), observer);
  }
  if (flight_) {
    std::optional<Flight> ahead = launch_ahead(observer);
    finish(*flight_, observer);
    flight_ = std::move(ahead);
  }
  tell_finished(observer);
#ifndef NDEBUG
  if (!has_work()) {
    const std::string wrong = check_integrity();
    if (!wrong.empty()) fail("medley bug: {}", wrong);
  }
#endif
}

}  // namespace medley
