// What SamplingParams ask for between the model's logits and the draw, in the order of transformers' generate():
// logit bias, repetition penalty, presence and frequency penalty, temperature, top-k, top-p, min-p.
// Nothing here sorts a vocabulary: top-k keeps a small buffer, top-p selects by radix. The arithmetic is that of
// kernels/sample.h, so that a device chooses the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "medley/sampling_params.h"

namespace medley {

// Which tokens a request has seen, and how often it has written each: what the penalties need, kept up to date token by
// token so that no step reads the whole history.
class TokenCounts {
 public:
  struct Entry {
    int32_t token = 0;
    int32_t in_output = 0;
  };

  void add_prompt(int32_t token) { entry(token); }
  void add_output(int32_t token) { ++entry(token).in_output; }
  std::span<const Entry> entries() const { return entries_; }  // each token once, in order of first appearance

 private:
  Entry& entry(int32_t token);

  std::vector<Entry> entries_;
  std::unordered_map<int32_t, size_t> index_;
};

bool wants_penalties(const SamplingParams& params);  // needs TokenCounts
bool changes_logits(const SamplingParams& params);   // bias or penalties

// Bias: logit + bias. Repetition (Keskar et al. 2019, as transformers): over prompt and output, a positive logit is
// divided, a negative one multiplied. Presence and frequency (OpenAI): over the output, logit - presence - count *
// frequency.
void apply_bias_and_penalties(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits);

// The best logit and the lowest token that has it. token -1: there is none (all are -inf, or there are no logits).
// not_finite: the first token whose logit is NaN or +inf, or -1.
struct Best {
  int32_t token = -1;
  float logit = 0;
  int32_t not_finite = -1;
};
Best find_best(std::span<const float> logits);

// The k-th largest value, 1 <= k <= values.size(); `scratch` is overwritten.
float kth_largest(std::span<const float> values, int64_t k, std::vector<float>& scratch);

// Tokens that may be drawn, in ascending order, and their weights: exp((logit - best) / temperature), so in [0, 1] and
// not normalised. Sums of weights are whole numbers (sampling::units_of); what weighs less than a unit is never drawn.
struct Candidates {
  std::vector<int32_t> tokens;
  std::vector<float> weights;
  std::vector<float> scratch;
  std::vector<uint64_t> bins;

  // All of the below, in the order of transformers: temperature (above 0), top-k, top-p, min-p.
  void choose(std::span<const float> logits, float best, const SamplingParams& params);

  // Everything that passes top-k: logits equal to the k-th largest all pass, as in transformers.
  void fill(std::span<const float> logits, float best, float temperature, int32_t top_k);
  // Keeps a token if those before it (heavier, or as heavy and lower) weigh less than top_p of all.
  void keep_top_p(float top_p);
  void keep_min_p(float min_p);
  // The token at share `uniform` (in [0, 1)) of the weights, summed in ascending order of tokens.
  int32_t draw(double uniform) const;

 private:
  uint64_t total() const;
  template <class Keep>
  void keep_if(Keep keep);
};

}  // namespace medley
