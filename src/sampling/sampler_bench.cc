// One row of a 150k vocabulary, by what the request asks for.
#include <benchmark/benchmark.h>

#include <random>

#include "sampling/sampler.h"

namespace medley {
namespace {

void run(benchmark::State& state, const SamplingParams& params) {
  constexpr int64_t vocab = 151936;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(vocab);
  for (float& logit : logits) logit = normal(random);
  ThreadPool pool(1);
  HostSampler sampler(vocab, pool);
  const std::vector<int32_t> prompt(1000, 7);
  sampler.start(0, params, prompt);
  const TensorView view(logits.data(), DType::f32, {1, vocab});
  const SampleRow row{1, 0, 0};
  for (auto _ : state) benchmark::DoNotOptimize(sampler.sample(view, std::span(&row, 1)));
}

SamplingParams with(float temperature, int32_t top_k, float top_p, float min_p, float repetition, int32_t logprobs) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  params.repetition_penalty = repetition;
  if (logprobs >= 0) params.logprobs = logprobs;
  return params;
}

BENCHMARK_CAPTURE(run, greedy, with(0, 0, 1, 0, 1, -1));
BENCHMARK_CAPTURE(run, greedy_repetition, with(0, 0, 1, 0, 1.1f, -1));
BENCHMARK_CAPTURE(run, greedy_logprobs, with(0, 0, 1, 0, 1, 5));
BENCHMARK_CAPTURE(run, temperature, with(1, 0, 1, 0, 1, -1));
BENCHMARK_CAPTURE(run, top_k_50, with(1, 50, 1, 0, 1, -1));
BENCHMARK_CAPTURE(run, top_p, with(1, 0, 0.95f, 0, 1, -1));
BENCHMARK_CAPTURE(run, top_k_top_p, with(1, 50, 0.95f, 0, 1, -1));
BENCHMARK_CAPTURE(run, min_p, with(1, 0, 1, 0.05f, 1, -1));

}  // namespace
}  // namespace medley
