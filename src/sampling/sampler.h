// Chooses each request's next token from the model's logits.
//
// A row's result depends on its logits, its SamplingParams, the tokens so far, and (seed, sample, number of tokens
// written so far): never on the other rows, the threads, or on having been preempted and resumed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/step_plan.h"
#include "medley/sampling_params.h"
#include "sampling/logit_processors.h"
#include "tensor/tensor.h"

namespace medley {

// One row to choose a token for. Filled by the engine from a PlanRow with `sample`.
struct SampleRow {
  RequestId request = 0;
  int32_t slot = 0;        // PlanRow::sampling_slot
  int64_t logits_row = 0;  // row of the logits
};

// Where tokens are chosen: HostSampler, or the runner's DeviceSampler beside the model.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // A request takes a slot: when it is admitted, and again when it resumes after a preemption, then with what it has
  // written so far. Params must have no problem(); ids must be below vocab_size.
  virtual void start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
                     std::span<const int32_t> output = {}) = 0;
  virtual void finish(int32_t slot) = 0;

  // Chooses a token for each row; collect() gives what launch() chose, in the order of the launches, of which two may
  // be under way. The tokens count as written: the slots' states move on with the launch. A row whose logits are not
  // finite gets an error instead of a token. A slot may come once in a launch.
  virtual void launch(const TensorView& logits,  // f32 [n, vocab_size], where this sampler works
                      std::span<const SampleRow> rows) = 0;
  virtual std::vector<Sampled> collect() = 0;  // one for each row, in order
  std::vector<Sampled> sample(const TensorView& logits, std::span<const SampleRow> rows) {
    launch(logits, rows);
    return collect();
  }

  // i32 [slots], beside the logits: the token that each slot's last launch chose (any valid one where there was an
  // error). What comes after the launch in its stream may read it.
  virtual TensorView last_tokens() const = 0;
  // Whether all tokens of the last launch are there; else some are known when they are collected.
  virtual bool tokens_in_place() const = 0;
};

class HostSampler final : public Sampler {
 public:
  HostSampler(int64_t vocab_size, ThreadPool& pool);

  void start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
             std::span<const int32_t> output = {}) override;
  void finish(int32_t slot) override;
  void launch(const TensorView& logits, std::span<const SampleRow> rows) override;  // done on return
  std::vector<Sampled> collect() override;
  TensorView last_tokens() const override;
  bool tokens_in_place() const override { return true; }

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
  std::vector<int32_t> last_;  // of each slot
  std::deque<std::vector<Sampled>> chosen_;
  std::vector<Scratch> scratch_;
};

// What is wrong with the logits of a request's output token number `written`: `token` has `logit`.
std::string not_finite_error(int64_t written, int32_t token, float logit, const SamplingParams& params);
std::string all_masked_error(int64_t written);

// log(sum(exp(logits))), in double and in order. The logits must be finite or -inf, one of them finite.
double log_sum_exp(std::span<const float> logits, float best);

// The `count` best tokens (ties: the lower one first) with their log-probabilities; `norm` from log_sum_exp.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double norm, int32_t count,
                                       std::vector<float>& scratch);

}  // namespace medley
