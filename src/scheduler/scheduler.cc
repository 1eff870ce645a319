#include "scheduler/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace medley {

Scheduler::Scheduler(const SchedulerConfig& config, KvCacheCoordinator& cache) : config_(config), cache_(cache) {
  if (config.max_batched_tokens < 1) {
    fail("max_batched_tokens is {}, must be at least 1", config.max_batched_tokens);
  }
  if (config.max_running < 1) fail("max_running is {}, must be at least 1", config.max_running);
  if (config.max_chunk < 0) fail("max_chunk is {}, must be positive, or 0 for no limit", config.max_chunk);
  MEDLEY_CHECK(cache.max_step_tokens() >= config.max_step_tokens());
  slot_taken_.assign(size_t(config.max_running), 0);
}

std::optional<std::string> Scheduler::add(Request request) {
  MEDLEY_CHECK(index_.count(request.id) == 0);
  if (request.prompt.empty()) return "the prompt is empty";
  const auto prompt = int64_t(request.prompt.size());
  const int32_t max_tokens = request.sampling.max_tokens;
  if (max_tokens < 0) return fmt::format("max_tokens is {}, must be 0 or more", max_tokens);
  if (config_.max_model_len > 0 && prompt + max_tokens > config_.max_model_len) {
    return fmt::format("a prompt of {} tokens plus max_tokens {} is longer than the model's {} tokens",
                       with_commas(prompt), with_commas(max_tokens), with_commas(config_.max_model_len));
  }
  if (const CacheFit fit = cache_.can_ever_fit(request.max_cached()); !fit.fits()) {
    return fmt::format("a prompt of {} tokens plus max_tokens {} cannot fit the cache: {}", with_commas(prompt),
                       with_commas(max_tokens), fit.message);
  }
  waiting_.push_back(std::move(request));
  index_[waiting_.back().id] = std::prev(waiting_.end());
  return std::nullopt;
}

StepPlan Scheduler::schedule() {
  MEDLEY_CHECK(in_flight_.empty());
  if (!has_work()) return {};
  make_room();
  StepPlan plan = plan_step();
  MEDLEY_CHECK(!plan.empty());
  return plan;
}

StepPlan Scheduler::schedule_ahead() {
  MEDLEY_CHECK(in_flight_.size() == 1);
  advance();
  return has_room() ? plan_step() : StepPlan();
}

StepPlan Scheduler::plan_step() {
  StepPlan plan;
  int64_t budget = config_.max_batched_tokens;
  for (const bool decode : {true, false}) {
    for (Request& request : running_) {
      if (goes_on(request) && (request.remaining() == 1) == decode) add_row(plan, request, budget);
    }
  }
  admit(plan, budget);
  if (plan.empty()) return plan;
  plan.step = ++step_;
  cache_.fill(plan);
  in_flight_.push_back({plan.step, plan.rows});
  return plan;
}

// The requests of the step in flight stand where it leaves them. What its kernels read may be given to others: the next
// step's come after them.
void Scheduler::advance() {
  Flight& flight = in_flight_.back();
  if (std::exchange(flight.advanced, true)) return;
  for (const PlanRow& row : flight.rows) {
    Request& request = *index_.at(row.request);
    request.computed += row.new_tokens;
    request.chosen_unseen += row.sample ? 1 : 0;
    cache_.commit(row.request, request.computed);
  }
}

// Whether a running request computes more tokens, as far as is known. With nothing in flight, they all do.
bool Scheduler::goes_on(const Request& request) const {
  if (request.finish_reason != FinishReason::none) return false;
  if (request.sampling.max_tokens == 0) return request.remaining() > 0;
  return int64_t(request.outputs.size()) + request.chosen_unseen < request.sampling.max_tokens;
}

// Like make_room(), but nobody has to go.
bool Scheduler::has_room() {
  return std::all_of(running_.begin(), running_.end(), [&](const Request& request) {
    return !goes_on(request) || cache_.reserve(request.id, request.computed + next_tokens(request));
  });
}

// Room for every running request's next tokens, at the cost of the latest ones. Only decoding needs new room: admission
// reserved all of the prompt.
void Scheduler::make_room() {
  for (auto request = running_.begin(); request != running_.end();) {
    if (cache_.reserve(request->id, request->computed + next_tokens(*request))) {
      ++request;
      continue;
    }
    if (running_.size() == 1) exclusive_ = request->id;
    const auto latest = std::prev(running_.end());
    if (latest == request) request = running_.end();
    preempt(latest);
  }
}

void Scheduler::admit(StepPlan& plan, int64_t& budget) {
  while (budget > 0 && !waiting_.empty() && running_.size() < slot_taken_.size()) {
    const auto request = waiting_.begin();
    if (exclusive_ && *exclusive_ != request->id) return;
    if (!cache_.reserve(request->id, tokens_to_admit(*request))) {
      MEDLEY_CHECK(!running_.empty());  // an empty cache takes whoever passed add()
      return;                           // nobody overtakes
    }
    running_.splice(running_.end(), waiting_, request);
    request->status = RequestStatus::running;
    request->sampling_slot = take_slot();
    add_row(plan, *request, budget);
  }
}

void Scheduler::add_row(StepPlan& plan, Request& request, int64_t& budget) {
  const int64_t tokens = std::min(next_tokens(request), budget);
  if (tokens == 0) return;
  budget -= tokens;
  const bool last = tokens == request.remaining();
  PlanRow row;
  row.request = request.id;
  row.computed = int32_t(request.computed);
  row.new_tokens = int32_t(tokens);
  row.first_token = int32_t(plan.token_ids.size());
  row.sample = last && request.sampling.max_tokens > 0;
  if (request.logits == LogitsWanted::all) {
    row.logits = LogitsWanted::all;
  } else if (row.sample || (last && request.logits == LogitsWanted::last)) {
    row.logits = LogitsWanted::last;
  }
  row.sampling_slot = request.sampling_slot;
  plan.rows.push_back(row);
  for (int64_t i = 0; i < tokens; ++i) plan.token_ids.push_back(request.token(request.computed + i));
}

int64_t Scheduler::next_tokens(const Request& request) const {
  return std::min(request.remaining(), config_.max_step_tokens());
}

// All that is known, plus a block to grow into (no more than the request can ever use).
int64_t Scheduler::tokens_to_admit(const Request& request) const {
  return std::min(request.num_tokens() + cache_.largest_block(), request.max_cached());
}

std::vector<Sampled> Scheduler::finish(StepResult result) {
  MEDLEY_CHECK(!in_flight_.empty() && result.step == in_flight_.front().step);
  if (in_flight_.size() == 1) advance();
  const Flight flight = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<Sampled> taken;
  auto sampled = result.sampled.begin();
  for (const PlanRow& row : flight.rows) {
    const bool has_token = row.sample && sampled != result.sampled.end() && sampled->request == row.request;
    const Iterator request = index_.at(row.request);
    const bool ended = request->finish_reason != FinishReason::none;  // while the step was in flight
    MEDLEY_CHECK(has_token == row.sample || ended);
    request->chosen_unseen -= row.sample ? 1 : 0;
    if (has_token && !ended) {
      request->outputs.push_back(sampled->token);
      taken.push_back(std::move(*sampled));
    }
    if (has_token) ++sampled;
    if (!ended) request->finish_reason = reason_to_finish(*request);
    if (request->finish_reason != FinishReason::none && !in_flight(row.request))
      retire(request, request->finish_reason);
  }
  MEDLEY_CHECK(sampled == result.sampled.end());
#ifndef NDEBUG
  if (!has_work()) MEDLEY_CHECK(check_integrity().empty());
#endif
  return taken;
}

bool Scheduler::in_flight(RequestId id) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const Flight& flight) {
    return std::any_of(flight.rows.begin(), flight.rows.end(), [&](const PlanRow& row) { return row.request == id; });
  });
}

FinishReason Scheduler::reason_to_finish(const Request& request) const {
  const SamplingParams& sampling = request.sampling;
  if (sampling.max_tokens == 0 && request.remaining() == 0) return FinishReason::length;
  if (request.outputs.empty()) return FinishReason::none;
  const auto contains = [token = request.outputs.back()](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (contains(sampling.stop_token_ids)) return FinishReason::stop;
  if (!sampling.ignore_eos && contains(config_.eos_token_ids)) return FinishReason::stop;
  return int64_t(request.outputs.size()) >= sampling.max_tokens ? FinishReason::length : FinishReason::none;
}

bool Scheduler::end(RequestId id, FinishReason reason) {
  const auto found = index_.find(id);
  if (found == index_.end()) return false;
  Request& request = *found->second;
  if (!in_flight(id)) {
    retire(found->second, reason);
  } else if (request.finish_reason == FinishReason::none) {
    request.finish_reason = reason;
  }
  return true;
}

void Scheduler::preempt(Iterator request) {
  MEDLEY_CHECK(request->chosen_unseen == 0);
  leave_cache(*request);
  request->status = RequestStatus::waiting;
  ++request->preemptions;
  ++preemptions_;
  waiting_.splice(waiting_.begin(), running_, request);
}

void Scheduler::retire(Iterator request, FinishReason reason) {
  index_.erase(request->id);
  if (exclusive_ == request->id) exclusive_.reset();
  auto& list = request->status == RequestStatus::running ? running_ : waiting_;
  leave_cache(*request);
  request->status = RequestStatus::finished;
  request->finish_reason = reason;
  finished_.splice(finished_.end(), list, request);
}

void Scheduler::leave_cache(Request& request) {
  cache_.release(request.id);
  request.computed = 0;
  if (request.sampling_slot >= 0) slot_taken_[size_t(request.sampling_slot)] = 0;
  request.sampling_slot = -1;
}

int32_t Scheduler::take_slot() {
  const auto free = std::find(slot_taken_.begin(), slot_taken_.end(), 0);
  MEDLEY_CHECK(free != slot_taken_.end());
  *free = 1;
  return int32_t(free - slot_taken_.begin());
}

std::vector<Request> Scheduler::take_finished() {
  std::vector<Request> finished(std::make_move_iterator(finished_.begin()), std::make_move_iterator(finished_.end()));
  finished_.clear();
  return finished;
}

const Request* Scheduler::find(RequestId id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &*found->second;
}

std::string Scheduler::check_integrity() const {
  std::vector<uint8_t> slots(slot_taken_.size(), 0);
  for (const Request& request : running_) {
    const bool good_slot = request.sampling_slot >= 0 && size_t(request.sampling_slot) < slots.size();
    if (!good_slot || slots[size_t(request.sampling_slot)]++ != 0) {
      return fmt::format("request {}: sampling slot {} is not its own", request.id, request.sampling_slot);
    }
    if (request.status != RequestStatus::running || cache_.reserved(request.id) < request.computed) {
      return fmt::format("request {} runs with {} tokens computed and {} reserved", request.id, request.computed,
                         cache_.reserved(request.id));
    }
  }
  if (slots != slot_taken_) return "a sampling slot is taken by nobody";
  for (const Request& request : waiting_) {
    if (request.status != RequestStatus::waiting || request.computed != 0 || request.sampling_slot != -1) {
      return fmt::format("request {} waits but has {} tokens computed", request.id, request.computed);
    }
  }
  if (cache_.requests() != running_.size() || index_.size() != running_.size() + waiting_.size()) {
    return fmt::format("{} running and {} waiting, but {} in the cache and {} indexed", running_.size(),
                       waiting_.size(), cache_.requests(), index_.size());
  }
  return cache_.check_integrity();
}

}  // namespace medley
