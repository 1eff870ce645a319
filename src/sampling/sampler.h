// Chooses each request's next token from the model's logits.
//
// A row's result depends on its logits, its SamplingParams, the tokens so far, and (seed, sample, number of tokens
// written so far): never on the other rows, the threads, or on having been preempted and resumed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "core/step_plan.h"
#include "medley/sampling_params.h"
#include "sampling/logit_processors.h"
#include "tensor/tensor.h"

namespace medley {

// One row to choose a token for. Filled by the ModelRunner from a PlanRow with `sample`.
struct SampleRow {
  RequestId request = 0;
  int32_t slot = 0;        // PlanRow::sampling_slot
  int64_t logits_row = 0;  // row of the logits
};

class Sampler {
 public:
  Sampler(int64_t vocab_size, ThreadPool& pool);

  // A request takes a slot: when it is admitted, and again when it resumes after a preemption, then with what it has
  // written so far. Params must have no problem(); ids must be below vocab_size.
  void start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
             std::span<const int32_t> output = {});
  void finish(int32_t slot);

  // One Sampled for each row, in order. The tokens count as written: the slots' states move on. A row whose logits are
  // not finite gets an error instead of a token, and its slot stays as it was. A slot may come once in a call.
  std::vector<Sampled> sample(const TensorView& logits,  // f32 [n, vocab_size], on the CPU
                              std::span<const SampleRow> rows);

 private:
  struct State {
    SamplingParams params;
    TokenCounts counts;  // stays empty without penalties
    int64_t written = 0;
  };
  struct Scratch {  // one for each worker
    std::vector<float> logits;
    Candidates candidates;
  };

  State& state(int32_t slot);
  Sampled sample_row(const State& state, std::span<const float> logits, Scratch& scratch) const;

  int64_t vocab_size_;
  ThreadPool& pool_;
  std::vector<std::unique_ptr<State>> slots_;
  std::vector<Scratch> scratch_;
};

// log(sum(exp(logits))), in double and in order. The logits must be finite or -inf, one of them finite.
double log_sum_exp(std::span<const float> logits, float best);

// The `count` best tokens (ties: the lower one first) with their log-probabilities; `norm` from log_sum_exp.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double norm, int32_t count,
                                       std::vector<float>& scratch);

}  // namespace medley
