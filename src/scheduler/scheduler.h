// Which requests compute how many tokens in the next step. Host only: it sees token counts, never a tensor.
//
// First come, first served. A step has one budget of tokens: first one for each decoding request, then chunks of the
// running prompts, then new requests as long as slots, budget and cache last. Admission reserves the whole known length
// plus a block; decoding grows step by step, and when the cache has no room the latest request is preempted: it loses
// its cache, goes to the head of the queue and is computed again from prompt and outputs.
//
// Somebody always finishes. running() followed by waiting() is always in order of arrival, and the head of running()
// computes at least one token in every step: a request is only admitted in a step that has tokens left when all running
// ones have theirs, so there are never more running requests than tokens in the budget. The head is never preempted for
// another; only when it is alone and cannot grow (its units lie scattered, so that another group finds no whole extent)
// it starts over, and then nobody else is admitted until it is done. From an empty cache it cannot fail: add() refused
// what does not fit one.
//
// Two steps may be in flight: schedule_ahead() makes the next one before the tokens of the last are known, on the
// assumption that no request ends there but those that have all their tokens. A request that does end there (EOS, a
// stop string, a cancellation) stays, with its cache and slot, until the later step is finished too, whose token is
// dropped. Who must wait for room, or would have to be preempted, is left to schedule().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/coordinator.h"
#include "core/step_plan.h"
#include "scheduler/request.h"

namespace medley {

struct SchedulerConfig {
  int64_t max_batched_tokens = 2048;   // in one step, of all requests
  int32_t max_running = 64;            // sampling slots
  int64_t max_chunk = 0;               // tokens of one request in one step; 0: as many as the budget allows
  int64_t max_model_len = 0;           // prompt + max_tokens; 0: no limit
  std::vector<int32_t> eos_token_ids;  // end a request unless it says ignore_eos

  // What the coordinator must be made with.
  int64_t max_step_tokens() const {
    return max_chunk > 0 ? std::min(max_chunk, max_batched_tokens) : max_batched_tokens;
  }
};

class Scheduler {
 public:
  // `cache` outlives the scheduler. Throws Error when the config makes no sense.
  Scheduler(const SchedulerConfig& config, KvCacheCoordinator& cache);

  // Queues the request, or says why it can never run (the message carries the numbers).
  [[nodiscard]] std::optional<std::string> add(Request request);

  // Ends a request that is waiting or running: cancelled, error, or stop for a stop string the engine found in the
  // text. One that is part of a step in flight ends when that step finishes, without its token; the first reason stays.
  // False: unknown id.
  bool end(RequestId id, FinishReason reason);
  bool cancel(RequestId id) { return end(id, FinishReason::cancelled); }

  // The next step, complete; empty only when there is no work. No step may be in flight.
  StepPlan schedule();

  // The step after the one in flight, with token_of_last_step where it needs a token chosen there; its tables are right
  // for who computes the steps in order. Empty: nothing to do, or not without knowing how the step in flight ends.
  StepPlan schedule_ahead();

  // The oldest step is computed: tokens are appended, requests end at EOS, stop tokens or max_tokens. When a step
  // failed, the engine ends its requests with `error` first; their entries in `result` may then be missing. Returns the
  // tokens that were appended: not those of requests that had ended.
  std::vector<Sampled> finish(StepResult result);

  bool has_work() const { return !running_.empty() || !waiting_.empty(); }
  std::vector<Request> take_finished();  // ended since the last call, in the order of ending

  const Request* find(RequestId id) const;  // waiting or running; null for others
  const std::list<Request>& running() const { return running_; }
  const std::list<Request>& waiting() const { return waiting_; }
  int64_t preemptions() const { return preemptions_; }

  std::string check_integrity() const;  // slots, lists and the cache's books; what is wrong, or empty

 private:
  using Iterator = std::list<Request>::iterator;

  StepPlan plan_step();
  void make_room();
  bool has_room();
  void advance();
  bool in_flight(RequestId request) const;
  bool goes_on(const Request& request) const;
  void admit(StepPlan& plan, int64_t& budget);
  void add_row(StepPlan& plan, Request& request, int64_t& budget);
  int64_t next_tokens(const Request& request) const;
  int64_t tokens_to_admit(const Request& request) const;
  void preempt(Iterator request);
  void retire(Iterator request, FinishReason reason);
  void leave_cache(Request& request);
  int32_t take_slot();
  FinishReason reason_to_finish(const Request& request) const;

  SchedulerConfig config_;
  KvCacheCoordinator& cache_;
  std::list<Request> running_;  // lists, so that moving a request between them keeps its iterator
  std::list<Request> waiting_;
  std::list<Request> finished_;
  std::unordered_map<RequestId, Iterator> index_;  // waiting and running
  struct Flight {
    uint64_t step = 0;
    std::vector<PlanRow> rows;
    bool advanced = false;  // its requests count as computed up to its end
  };
  std::deque<Flight> in_flight_;  // steps that are being computed, the oldest first
  std::vector<uint8_t> slot_taken_;
  std::optional<RequestId> exclusive_;  // nobody else is admitted until it ends
  uint64_t step_ = 0;
  int64_t preemptions_ = 0;
};

}  // namespace medley
