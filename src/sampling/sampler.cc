#include "sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/sample.h"
#include "sampling/philox.h"

namespace medley {

double log_sum_exp(std::span<const float> logits, float best) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return double(best) + std::log(sum);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double norm, int32_t count,
                                       std::vector<float>& scratch) {
  const int64_t wanted = std::min<int64_t>(count, int64_t(logits.size()));
  if (wanted <= 0) return {};
  const float least = kth_largest(logits, wanted, scratch);
  std::vector<TokenLogprob> top;
  int64_t ties = wanted - std::count_if(logits.begin(), logits.end(), [&](float logit) { return logit > least; });
  for (size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] > least || (logits[token] == least && ties-- > 0)) {
      top.push_back({int32_t(token), logits[token]});
    }
  }
  std::stable_sort(top.begin(), top.end(),
                   [](const TokenLogprob& a, const TokenLogprob& b) { return a.logprob > b.logprob; });
  for (TokenLogprob& entry : top) entry.logprob = float(double(entry.logprob) - norm);
  return top;
}

std::string not_finite_error(int64_t written, int32_t token, float logit, const SamplingParams& params) {
  return fmt::format("the logits of output token {} cannot be sampled: token {} has {}{}", written, token, logit,
                     changes_logits(params) ? " after bias and penalties" : "");
}

std::string all_masked_error(int64_t written) {
  return fmt::format("the logits of output token {} cannot be sampled: all are -inf", written);
}

HostSampler::HostSampler(int64_t vocab_size, ThreadPool& pool)
    : vocab_size_(vocab_size), pool_(pool), scratch_(size_t(pool.size())) {
  MEDLEY_CHECK(vocab_size <= sampling::most_tokens);
}

HostSampler::State& HostSampler::state(int32_t slot) {
  MEDLEY_CHECK(slot >= 0 && size_t(slot) < slots_.size() && slots_[size_t(slot)]);
  return *slots_[size_t(slot)];
}

void HostSampler::start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
                        std::span<const int32_t> output) {
  MEDLEY_CHECK(slot >= 0);
  if (slots_.size() <= size_t(slot)) slots_.resize(size_t(slot) + 1), last_.resize(size_t(slot) + 1);
  auto state = std::make_unique<State>();
  state->params = params;
  state->written = int64_t(output.size());
  if (params.repetition_penalty != 1.0f) {
    for (const int32_t token : prompt) state->counts.add_prompt(token);
  }
  if (wants_penalties(params)) {
    for (const int32_t token : output) state->counts.add_output(token);
  }
  slots_[size_t(slot)] = std::move(state);
}

void HostSampler::finish(int32_t slot) {
  state(slot);
  slots_[size_t(slot)].reset();
}

void HostSampler::launch(const TensorView& logits, std::span<const SampleRow> rows) {
  MEDLEY_CHECK(logits.device == Device::cpu && logits.rank == 2 && logits.size(1) == vocab_size_);
  MEDLEY_CHECK(logits.strides[1] == 1);
  std::vector<Sampled> sampled(rows.size());
  pool_.parallel_for(int64_t(rows.size()), [&](int64_t task, int worker) {
    const SampleRow& row = rows[size_t(task)];
    MEDLEY_CHECK(row.logits_row >= 0 && row.logits_row < logits.size(0));
    const std::span<const float> values(logits.row<float>(row.logits_row), size_t(vocab_size_));
    sampled[size_t(task)] = sample_row(state(row.slot), values, scratch_[size_t(worker)]);
    sampled[size_t(task)].request = row.request;
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    last_[size_t(rows[i].slot)] = sampled[i].token;
    if (!sampled[i].error.empty()) continue;
    State& written = state(rows[i].slot);
    ++written.written;
    if (wants_penalties(written.params)) written.counts.add_output(sampled[i].token);
  }
  chosen_.push_back(std::move(sampled));
}

std::vector<Sampled> HostSampler::collect() {
  MEDLEY_CHECK(!chosen_.empty());
  std::vector<Sampled> sampled = std::move(chosen_.front());
  chosen_.pop_front();
  return sampled;
}

TensorView HostSampler::last_tokens() const {
  return TensorView(const_cast<int32_t*>(last_.data()), DType::i32, {int64_t(last_.size())});
}

Sampled HostSampler::sample_row(const State& state, std::span<const float> logits, Scratch& scratch) const {
  const SamplingParams& params = state.params;
  std::span<const float> processed = logits;
  if (changes_logits(params)) {
    scratch.logits.assign(logits.begin(), logits.end());
    apply_bias_and_penalties(params, state.counts, scratch.logits);
    processed = scratch.logits;
  }
  Sampled result;
  const Best best = find_best(processed);
  if (best.not_finite >= 0) {
    result.error = not_finite_error(state.written, best.not_finite, processed[size_t(best.not_finite)], params);
    return result;
  }
  if (best.token < 0) {
    result.error = all_masked_error(state.written);
    return result;
  }
  result.token = best.token;
  if (params.temperature > 0) {
    Candidates& candidates = scratch.candidates;
    candidates.choose(processed, best.logit, params);
    result.token = candidates.draw(philox_uniform(params.seed, uint64_t(state.written), 0, uint32_t(params.sample)));
  }
  if (params.logprobs) {
    const float top = processed.data() == logits.data() ? best.logit : find_best(logits).logit;
    const double norm = log_sum_exp(logits, top);
    result.logprob = float(double(logits[size_t(result.token)]) - norm);
    result.top = top_logprobs(logits, norm, *params.logprobs, scratch.candidates.scratch);
  }
  return result;
}

}  // namespace medley
