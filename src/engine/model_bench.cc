#include "engine/model_bench.h"

#include <algorithm>
#include <chrono>

#include "kernels/random.h"
#include "runner/device_sampler.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

constexpr int warm_up = 4;  // the first step of a shape loads kernels, the second is recorded

// A cache for `requests` requests of `tokens` tokens, and what runs steps over it.
struct Bench {
  Bench(LoadedModel& loaded, int64_t requests, int64_t tokens, bool graphs)
      : specs(loaded.model->cache_specs()),
        arena(plan_arena(bytes_for(specs, requests, tokens), specs)),
        cache(specs, arena, tokens),
        runner(*loaded.model, arena.geometry(), *loaded.threads, loaded.device, graphs) {
    // What a step finds there must be numbers: two small bf16 are also a small f32.
    const Buffer& memory = runner.arena();
    fill_random(memory.view(DType::bf16, {int64_t(memory.bytes() / 2)}), 1, 1, *loaded.threads);
  }

  static int64_t bytes_for(const std::vector<KvCacheSpec>& specs, int64_t requests, int64_t tokens) {
    int64_t bytes = int64_t(64) << 20;
    for (const KvCacheSpec& spec : specs) {
      const int64_t block = std::max(spec.tokens_per_block, 1);
      bytes += requests * (spec.bytes_per_token() * (tokens + 2 * block) + spec.bytes_per_request());
    }
    return bytes + bytes / 8;
  }

  void reserve(RequestId request, int64_t tokens) {
    if (!cache.reserve(request, tokens)) fail("the benchmark's cache is too small");
  }
  // A request with `tokens` behind it, as one step would have computed them.
  void hold(RequestId request, int32_t tokens) {
    reserve(request, tokens);
    StepPlan plan;
    plan.rows.push_back({.request = request, .new_tokens = tokens});
    cache.fill(plan);
    cache.commit(request, tokens);
  }

  const std::vector<KvCacheSpec>& specs;
  Arena arena;
  KvCacheCoordinator cache;
  ModelRunner runner;
};

}  // namespace

int64_t ModelBench::cache_traffic(const DecodeCase& one) const {
  int64_t bytes = 0;
  for (const KvCacheSpec& spec : loaded_.model->cache_specs()) {
    const int64_t seen = spec.window > 0 ? std::min(spec.window, one.context) : one.context;
    bytes += spec.bytes_per_token() * seen + 2 * spec.bytes_per_request();
  }
  return bytes * one.batch;
}

DecodeTimes ModelBench::decode(const DecodeCase& one) const {
  const int steps = 3 * (warm_up + one.steps) + 1;
  Bench bench(loaded_, one.batch, one.context + steps + 1, graphs_);
  const auto sampler = make_sampler(loaded_.device, loaded_.model->info().vocab_size, one.batch, *loaded_.threads,
                                    bench.runner.stream());
  std::vector<SampleRow> rows;
  for (int32_t i = 0; i < one.batch; ++i) {
    bench.hold(RequestId(i + 1), int32_t(one.context));
    sampler->start(i, {.temperature = 0}, {});
    rows.push_back({RequestId(i + 1), i, i});
  }
  int32_t computed = one.context;
  const auto launch = [&] {
    StepPlan plan{.step = uint64_t(computed)};
    for (int32_t i = 0; i < one.batch; ++i) {
      bench.reserve(RequestId(i + 1), computed + 1);
      plan.rows.push_back({.request = RequestId(i + 1),
                           .computed = computed,
                           .new_tokens = 1,
                           .first_token = i,
                           .logits = LogitsWanted::last,
                           .sample = true,
                           .sampling_slot = i});
      plan.token_ids.push_back(token_of_last_step);
    }
    bench.cache.fill(plan);
    ++computed;
    for (int32_t i = 0; i < one.batch; ++i) bench.cache.commit(RequestId(i + 1), computed);
    bench.runner.start(plan, sampler->last_tokens());
  };
  const auto choose = [&] { sampler->launch(bench.runner.device_logits(), rows); };
  const auto times = [&](const auto& step) {
    std::vector<double> seconds;
    for (int i = 0; i < warm_up + one.steps; ++i) {
      const Clock::time_point start = Clock::now();
      step();
      if (i >= warm_up) seconds.push_back(seconds_since(start));
    }
    return median(seconds);
  };
  // Experts see the tokens that were chosen in all three; the last one lets nobody choose anew.
  DecodeTimes result;
  result.serial_seconds = times([&] {
    launch();
    choose();
    sampler->collect();
  });
  launch(), choose();
  result.step_seconds = times([&] {
    launch();
    choose();
    sampler->collect();  // of the step before
  });
  sampler->collect();
  result.forward_seconds = times([&] {
    launch();
    synchronize(bench.runner.stream());
  });
  return result;
}

double ModelBench::prefill(int32_t tokens, int repeats) const {
  Bench bench(loaded_, 1, tokens + 1, graphs_);
  std::vector<double> seconds;
  for (int i = 0; i < repeats + 1; ++i) {
    bench.reserve(1, tokens + 1);
    StepPlan plan{.step = uint64_t(i)};
    plan.rows.push_back({.request = 1, .new_tokens = tokens, .logits = LogitsWanted::last, .sample = true});
    for (int32_t t = 0; t < tokens; ++t) plan.token_ids.push_back(int32_t(t * 7919 % loaded_.model->info().vocab_size));
    bench.cache.fill(plan);
    const Clock::time_point start = Clock::now();
    bench.runner.start(plan);
    synchronize(bench.runner.stream());
    if (i > 0) seconds.push_back(seconds_since(start));
    bench.cache.release(1);
  }
  return median(seconds);
}

}  // namespace medley
