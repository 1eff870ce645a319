// One request, from arrival to its last token. The engine fills the first part and hands it to the Scheduler, which
// owns it and fills the rest until the engine takes it back with Scheduler::take_finished.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/step_plan.h"
#include "medley/sampling_params.h"

namespace medley {

enum class RequestStatus : uint8_t { waiting, running, finished };

enum class FinishReason : uint8_t {
  none,    // not finished
  stop,    // an EOS or stop token, or (the engine's decision) a stop string
  length,  // max_tokens; with max_tokens 0: the prompt is computed
  cancelled,
  error,
};

struct Request {
  // Filled by the engine.
  RequestId id = 0;  // unique among the scheduler's requests
  std::vector<int32_t> prompt;
  SamplingParams sampling;                   // max_tokens 0: compute the prompt, choose no token
  LogitsWanted logits = LogitsWanted::none;  // what the caller wants to see, beside what sampling needs. After a
                                             // preemption `all` computes rows again: place them by PlanRow::computed.
  double arrival = 0;                        // seconds on the engine's clock; order of service is order of add()

  // Filled by the scheduler.
  std::vector<int32_t> outputs;
  RequestStatus status = RequestStatus::waiting;
  FinishReason finish_reason = FinishReason::none;
  int64_t computed = 0;        // tokens in the cache when the steps made so far are done; 0 again after a preemption
  int32_t chosen_unseen = 0;   // tokens that a step in flight chooses and that count as computed or to compute already
  int32_t sampling_slot = -1;  // while running
  int32_t preemptions = 0;

  int64_t num_tokens() const { return int64_t(prompt.size() + outputs.size()); }
  int64_t remaining() const { return num_tokens() + chosen_unseen - computed; }  // to compute: 1 when decoding
  int32_t token(int64_t i) const {
    const auto prompt_size = int64_t(prompt.size());
    if (i >= num_tokens()) return token_of_last_step;
    return i < prompt_size ? prompt[size_t(i)] : outputs[size_t(i - prompt_size)];
  }
  // The most tokens that can enter the cache: the last one chosen never does.
  int64_t max_cached() const { return int64_t(prompt.size()) + std::max(0, sampling.max_tokens - 1); }
};

}  // namespace medley
