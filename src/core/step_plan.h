// StepPlan: one step's work as the scheduler hands it to the runner. Host memory, flat, no pointers, so that it can be
// broadcast to ranks. StepResult: what comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace medley {

using RequestId = uint64_t;

enum class LogitsWanted : uint8_t { none, last, all };

// In StepPlan::token_ids: what the step before chooses in the row's sampling slot. Who makes the plan does not know it
// yet; the runner takes it from where the sampler puts it.
constexpr int32_t token_of_last_step = -1;

// One request's share of a step. Filled by the Scheduler.
struct PlanRow {
  RequestId request = 0;
  int32_t computed = 0;     // tokens already in the cache
  int32_t new_tokens = 0;   // tokens this step computes: token_ids[first_token ... + new_tokens)
  int32_t first_token = 0;  // index into StepPlan::token_ids
  LogitsWanted logits = LogitsWanted::none;
  bool sample = false;        // the last new token's logits choose the next token
  int32_t sampling_slot = 0;  // which of the runner's sampling states: stable while the request runs
};

// One cache group's tables for the step. Filled by the KvCacheCoordinator. Numbers are rows as in kv_cache_spec.h.
struct PlanGroup {
  // paged: each row's blocks, concatenated; row r owns [block_offsets[r], block_offsets[r + 1]). Block i of a row
  // covers tokens [i * tokens_per_block, ...); one that was dropped (outside the window) is -1.
  std::vector<int32_t> blocks;
  std::vector<int32_t> block_offsets;
  // state: [num_layers][rows], the unit read and the unit written (equal: in place). A row whose request has computed
  // nothing yet reads -1: the zero state.
  std::vector<int32_t> state_in;
  std::vector<int32_t> state_out;
};

struct StepPlan {
  uint64_t step = 0;  // counts up
  std::vector<PlanRow> rows;
  std::vector<int32_t> token_ids;  // of all rows, concatenated; or token_of_last_step
  std::vector<PlanGroup> groups;   // parallel to the model's cache_specs()

  bool empty() const { return rows.empty(); }
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;
};

// A chosen token. Filled by the Sampler.
struct Sampled {
  RequestId request = 0;
  int32_t token = 0;
  // With SamplingParams::logprobs, under the model's own distribution (before penalties, temperature and filters):
  float logprob = 0;              // of the token
  std::vector<TokenLogprob> top;  // SamplingParams::logprobs many, best first
  std::string error;  // not empty: the logits were not finite; there is no token, the request ends with this
};

struct StepResult {
  uint64_t step = 0;
  std::vector<Sampled> sampled;  // one for each row with `sample`, in row order
};

}  // namespace medley
