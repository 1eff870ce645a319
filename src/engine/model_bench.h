// Times the steps of a model without anybody's prompt: a batch of requests whose contexts are pretended to be there
// (the cache holds random numbers), decoding one token each a step.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/coordinator.h"
#include "engine/loaded_model.h"
#include "runner/model_runner.h"
#include "sampling/sampler.h"

namespace medley {

struct DecodeCase {
  int32_t batch = 1;
  int32_t context = 4096;  // tokens before the first step
  int steps = 32;          // timed, after warm-up
};

// Medians of whole steps, tables and model included.
struct DecodeTimes {
  double step_seconds = 0;     // with the greedy choice, each launched before the last one's tokens are read
  double serial_seconds = 0;   // the same one after the other
  double forward_seconds = 0;  // one after the other, no token chosen
  double tokens_per_second(const DecodeCase& one) const { return one.batch / step_seconds; }
};

class ModelBench {
 public:
  ModelBench(LoadedModel& loaded, bool graphs) : loaded_(loaded), graphs_(graphs) {}

  // Bytes that one token of each request reads of the cache (states: reads and writes).
  int64_t cache_traffic(const DecodeCase& one) const;
  DecodeTimes decode(const DecodeCase& one) const;
  // Median seconds of a step that computes `tokens` tokens of one new request, without logits but the last.
  double prefill(int32_t tokens, int repeats) const;

 private:
  LoadedModel& loaded_;
  bool graphs_;
};

}  // namespace medley
