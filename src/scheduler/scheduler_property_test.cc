// Random models, arenas and requests: every admitted request finishes with the tokens it gets alone, in a bounded
// number of steps, and the books balance after each of them.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "scheduler/fake_runner.h"
#include "scheduler/scheduler.h"

namespace medley {
namespace {

// rapidcheck's own ranges start near their lower end and widen from case to case; these are wide from the first.
template <class T>
T pick(T from, T to) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(from, to));
}

KvCacheSpec any_spec(int index) {
  const auto kind = *rc::gen::element(CacheKind::full, CacheKind::window, CacheKind::state);
  KvCacheSpec spec{kind, fmt::format("group{}", index), pick(1, 4)};
  if (spec.paged()) {
    spec.tokens_per_block = pick(1, 6);
    spec.row_bytes = 8 * pick(1, 4);
  } else {
    spec.row_bytes = pick(1, 600);
  }
  if (kind == CacheKind::window) spec.window = pick(1, 20);
  return spec;
}

Request any_request(RequestId id, int64_t most_tokens) {
  Request request;
  request.id = id;
  request.prompt = *rc::gen::container<std::vector<int32_t>>(size_t(pick(1, 40)), rc::gen::inRange(0, 1000));
  request.sampling.max_tokens = pick(0, 40);
  request.sampling.ignore_eos = *rc::gen::arbitrary<bool>();
  if (pick(0, 4) == 0) {  // one that in the end needs the whole cache
    request.sampling.max_tokens = int32_t(std::max<int64_t>(0, most_tokens - int64_t(request.prompt.size()) + 1));
    request.sampling.ignore_eos = true;
  }
  request.logits = *rc::gen::element(LogitsWanted::none, LogitsWanted::last, LogitsWanted::all);
  return request;
}

std::vector<int32_t> alone(const Request& request, const std::vector<int32_t>& eos) {
  std::vector<int32_t> tokens = request.prompt;
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    tokens.push_back(FakeRunner::next_token(tokens));
    if (!request.sampling.ignore_eos && std::count(eos.begin(), eos.end(), tokens.back()) != 0) break;
  }
  return {tokens.begin() + int64_t(request.prompt.size()), tokens.end()};
}

struct Totals {
  int64_t finished = 0;
  int64_t preemptions = 0;
  int64_t refused = 0;
  int64_t cancelled = 0;
  int64_t self_preemptions = 0;  // of a request that was alone: the scattered corner
  int64_t ahead = 0;             // steps made before the last one's tokens were known
  int64_t dropped = 0;           // tokens of requests that had ended
};

// overlap: most steps are made, and run, before the last one is finished.
void run_any(Totals& totals, bool overlap) {
  std::vector<KvCacheSpec> specs;
  for (int i = pick(1, 4); i > 0; --i) specs.push_back(any_spec(i));
  // A geometry of our own, not plan_arena's: extents of many units make scattered units likely.
  int64_t step = state_granule;
  int64_t largest = 0;
  for (const KvCacheSpec& spec : specs) {
    step = std::lcm(step, granule_bytes(spec));
    largest = std::max(largest, stored_unit_bytes(spec));
  }
  const int64_t extent_bytes = (largest + step - 1) / step * pick(1, 9) * step;
  SchedulerConfig config;
  config.max_batched_tokens = pick(1, 40);
  config.max_running = pick(1, 6);
  config.max_chunk = pick(0, 10);
  for (int32_t token = 0; token < 20; ++token) config.eos_token_ids.push_back(token);  // 2 % of the tokens

  // About what the largest requests need: most fit, few fit together.
  Arena vast({extent_bytes, 1 << 12});
  const int64_t needed = KvCacheCoordinator(specs, vast, config.max_step_tokens()).can_ever_fit(70).extents_needed;
  const ArenaGeometry geometry{extent_bytes, int32_t(needed) + pick(-1, 3)};

  Arena arena(geometry);
  KvCacheCoordinator cache(specs, arena, config.max_step_tokens());
  Scheduler scheduler(config, cache);
  const int64_t most_tokens = cache.can_ever_fit(120).fits() ? 120 : cache.can_ever_fit(120).most_tokens;
  FakeRunner runner(specs, geometry);
  std::map<RequestId, std::vector<int32_t>> expected;
  int64_t steps_left = 0;
  std::optional<StepResult> flight;  // of the step that counts as running
  const auto run = [&](const StepPlan& plan) {
    RC_ASSERT(int64_t(plan.token_ids.size()) <= config.max_batched_tokens);
    for (const PlanRow& row : plan.rows) RC_ASSERT(row.new_tokens <= config.max_step_tokens());
    return runner.run(plan);
  };
  const int requests = pick(1, 12);
  for (RequestId id = 1; id <= RequestId(requests) || scheduler.has_work();) {
    // Some requests come together, others while those before are running.
    while (id <= RequestId(requests) && (!scheduler.has_work() || pick(0, 3) == 0)) {
      Request request = any_request(id++, most_tokens);
      const std::vector<int32_t> tokens = alone(request, config.eos_token_ids);
      const RequestId added = request.id;
      // The head of the list computes a token in every step and starts over at most once.
      // A step ahead may hold nothing but its dropped token.
      const int64_t most_steps = 2 * request.max_cached() + 1 + (overlap ? 1 : 0);
      if (scheduler.add(std::move(request))) {
        ++totals.refused;
      } else {
        expected[added] = tokens;
        steps_left += most_steps;
      }
    }
    if (!scheduler.has_work()) continue;
    if (!flight) {
      const int64_t preemptions = scheduler.preemptions();
      const bool was_alone = scheduler.running().size() == 1;
      const StepPlan plan = scheduler.schedule();
      if (was_alone) totals.self_preemptions += scheduler.preemptions() - preemptions;
      RC_ASSERT(!plan.empty());
      RC_ASSERT(std::any_of(plan.rows.begin(), plan.rows.end(), [&](const PlanRow& row) {
        return row.request == scheduler.running().front().id;  // the oldest always computes
      }));
      flight = run(plan);
    }
    std::optional<StepResult> ahead;
    if (overlap && pick(0, 8) > 0) {
      if (const StepPlan plan = scheduler.schedule_ahead(); !plan.empty()) {
        ahead = run(plan);
        ++totals.ahead;
      }
    }
    RC_ASSERT(runner.error == "");
    RC_ASSERT(scheduler.check_integrity() == "");
    if (pick(0, 150) == 0) {  // a cancel while the step runs
      const Request& victim = scheduler.running().back();
      if (victim.finish_reason == FinishReason::none) {  // else it has ended, and waits for the step
        expected.erase(victim.id);
        ++totals.cancelled;
      }
      RC_ASSERT(scheduler.cancel(victim.id));
    }
    const size_t sampled = flight->sampled.size();
    totals.dropped += int64_t(sampled - scheduler.finish(*flight).size());
    flight = std::move(ahead);
    RC_ASSERT(scheduler.check_integrity() == "");
    RequestId before = 0;
    for (const auto* list : {&scheduler.running(), &scheduler.waiting()}) {
      for (const Request& request : *list) {
        RC_ASSERT(request.id > before);  // in order of arrival
        before = request.id;
      }
    }
    for (const Request& request : scheduler.take_finished()) {
      if (request.finish_reason == FinishReason::cancelled) continue;
      RC_ASSERT(request.outputs == expected.at(request.id));
      expected.erase(request.id);
      ++totals.finished;
    }
    RC_ASSERT(--steps_left >= 0);
  }
  RC_ASSERT(expected.empty());
  RC_ASSERT(arena.free_extents() == geometry.extents);
  totals.preemptions += scheduler.preemptions();
}

void everybody_finishes(bool overlap, Totals& totals) {
  EXPECT_TRUE(rc::check("everybody finishes", [&] {
    for (int i = 0; i < 6; ++i) run_any(totals, overlap);
  }));
  // The runs above must have been through what they are meant to test.
  EXPECT_GT(totals.finished, 100);
  EXPECT_GT(totals.preemptions, 50);
  EXPECT_GT(totals.refused, 10);
  EXPECT_GT(totals.cancelled, 10);
  printf("finished %ld preempted %ld (alone %ld) refused %ld cancelled %ld ahead %ld dropped %ld\n", totals.finished,
         totals.preemptions, totals.self_preemptions, totals.refused, totals.cancelled, totals.ahead, totals.dropped);
}

TEST(SchedulerProperty, EveryAdmittedRequestFinishesWithTheTokensItGetsAlone) {
  Totals totals;
  everybody_finishes(false, totals);
}

TEST(SchedulerProperty, StepsMadeAheadChangeNoToken) {
  Totals totals;
  everybody_finishes(true, totals);
  EXPECT_GT(totals.ahead, 1000);
  EXPECT_GT(totals.dropped, 100);
}

}  // namespace
}  // namespace medley
