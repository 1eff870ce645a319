#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <stdexcept>

#include "base/error.h"
#include "scheduler/fake_runner.h"

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::ThrowsMessage;

Request make_request(RequestId id, int32_t prompt, int32_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt.resize(size_t(prompt));
  std::iota(request.prompt.begin(), request.prompt.end(), int32_t(id) * 100);
  request.sampling.max_tokens = max_tokens;
  return request;
}

// 16 pages of 4 tokens, two requests at a time, 8 tokens a step.
class SchedulerTest : public testing::Test {
 protected:
  const std::vector<KvCacheSpec> specs{{CacheKind::full, "attention", 1, 4, 64}};
  const ArenaGeometry geometry{256, 16};
  Arena arena{geometry};
  KvCacheCoordinator cache{specs, arena, 8};
  FakeRunner runner{specs, geometry};

  static SchedulerConfig config() { return {.max_batched_tokens = 8, .max_running = 2, .eos_token_ids = {5}}; }

  void step(Scheduler& scheduler) {
    scheduler.finish(runner.run(scheduler.schedule()));
    EXPECT_EQ(runner.error, "");
    EXPECT_EQ(scheduler.check_integrity(), "");
  }

  static StepResult answer(const StepPlan& plan, int32_t token) {
    StepResult result{plan.step, {}};
    for (const PlanRow& row : plan.rows) {
      if (row.sample) result.sampled.push_back({row.request, token});
    }
    return result;
  }
};

TEST_F(SchedulerTest, RefusesWhatCanNeverRun) {
  SchedulerConfig limited = config();
  limited.max_model_len = 50;
  Scheduler scheduler(limited, cache);
  EXPECT_THAT(scheduler.add(make_request(1, 0, 4)), Optional(HasSubstr("prompt is empty")));
  EXPECT_THAT(scheduler.add(make_request(1, 4, -1)), Optional(HasSubstr("max_tokens is -1")));
  EXPECT_THAT(scheduler.add(make_request(1, 41, 10)),
              Optional(HasSubstr("prompt of 41 tokens plus max_tokens 10 is longer than the model's 50 tokens")));
  EXPECT_EQ(scheduler.add(make_request(1, 40, 10)), std::nullopt);
  Scheduler unlimited(config(), cache);
  EXPECT_THAT(unlimited.add(make_request(1, 60, 6)), Optional(HasSubstr("at most 64 tokens fit")));
  EXPECT_EQ(unlimited.add(make_request(1, 60, 5)), std::nullopt);  // the last token never enters the cache
  EXPECT_EQ(unlimited.check_integrity(), "");
}

TEST_F(SchedulerTest, EndsAtEosStopTokensAndLength) {
  for (const bool ignore_eos : {false, true}) {
    Scheduler scheduler(config(), cache);
    Request eos = make_request(1, 2, 3);
    eos.sampling.ignore_eos = ignore_eos;
    Request stop = make_request(2, 2, 3);
    stop.sampling.stop_token_ids = {5, 6};
    stop.sampling.ignore_eos = true;
    ASSERT_EQ(scheduler.add(std::move(eos)), std::nullopt);
    ASSERT_EQ(scheduler.add(std::move(stop)), std::nullopt);
    std::vector<Request> finished;
    while (scheduler.has_work()) {
      const StepPlan plan = scheduler.schedule();
      scheduler.finish(answer(plan, 5));
      for (Request& request : scheduler.take_finished()) finished.push_back(std::move(request));
    }
    ASSERT_EQ(finished.size(), 2u);
    const Request& with_eos = finished[ignore_eos ? 1 : 0];
    const Request& with_stop = finished[ignore_eos ? 0 : 1];
    EXPECT_EQ(with_eos.finish_reason, ignore_eos ? FinishReason::length : FinishReason::stop);
    EXPECT_EQ(with_eos.outputs.size(), ignore_eos ? 3u : 1u);
    EXPECT_EQ(with_stop.finish_reason, FinishReason::stop);
    EXPECT_EQ(with_stop.status, RequestStatus::finished);
    EXPECT_THAT(with_stop.outputs, ElementsAre(5));
    EXPECT_EQ(scheduler.check_integrity(), "");
  }
}

TEST_F(SchedulerTest, LogitsOfAPromptWithoutSampling) {
  SchedulerConfig chunked = config();
  chunked.max_chunk = 3;
  Scheduler scheduler(chunked, cache);
  Request all = make_request(1, 4, 0);
  all.logits = LogitsWanted::all;
  Request last = make_request(2, 4, 0);
  last.logits = LogitsWanted::last;
  ASSERT_EQ(scheduler.add(std::move(all)), std::nullopt);
  ASSERT_EQ(scheduler.add(std::move(last)), std::nullopt);
  StepPlan plan = scheduler.schedule();
  ASSERT_EQ(plan.rows.size(), 2u);
  EXPECT_EQ(plan.rows[0].logits, LogitsWanted::all);
  EXPECT_EQ(plan.rows[1].logits, LogitsWanted::none);
  scheduler.finish({plan.step, {}});
  plan = scheduler.schedule();
  EXPECT_EQ(plan.rows[0].logits, LogitsWanted::all);
  EXPECT_EQ(plan.rows[0].new_tokens, 1);
  EXPECT_EQ(plan.rows[1].logits, LogitsWanted::last);
  EXPECT_FALSE(plan.rows[0].sample || plan.rows[1].sample);
  scheduler.finish({plan.step, {}});
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.take_finished()[0].finish_reason, FinishReason::length);
}

TEST_F(SchedulerTest, AStopStringEndsARequestBetweenSteps) {
  Scheduler scheduler(config(), cache);
  ASSERT_EQ(scheduler.add(make_request(1, 2, 9)), std::nullopt);
  step(scheduler);
  EXPECT_EQ(scheduler.find(1)->outputs.size(), 1u);
  EXPECT_TRUE(scheduler.end(1, FinishReason::stop));
  EXPECT_FALSE(scheduler.end(1, FinishReason::stop));
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.find(1), nullptr);
  EXPECT_EQ(scheduler.take_finished()[0].finish_reason, FinishReason::stop);
  EXPECT_THAT(scheduler.take_finished(), IsEmpty());
  EXPECT_EQ(arena.free_extents(), 16);
}

TEST_F(SchedulerTest, ACancelDuringAStepTakesEffectWhenTheStepIsDone) {
  Scheduler scheduler(config(), cache);
  ASSERT_EQ(scheduler.add(make_request(1, 2, 9)), std::nullopt);
  const StepPlan plan = scheduler.schedule();
  EXPECT_TRUE(scheduler.cancel(1));
  EXPECT_LT(arena.free_extents(), 16);  // the step still writes there
  scheduler.finish(answer(plan, 7));
  const std::vector<Request> finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].finish_reason, FinishReason::cancelled);
  EXPECT_THAT(finished[0].outputs, IsEmpty());
  EXPECT_EQ(arena.free_extents(), 16);
}

TEST_F(SchedulerTest, AStepAheadTakesTheTokenNobodyKnowsYet) {
  Scheduler scheduler(config(), cache);
  ASSERT_EQ(scheduler.add(make_request(1, 3, 9)), std::nullopt);
  ASSERT_EQ(scheduler.add(make_request(2, 3, 1)), std::nullopt);
  const StepPlan first = scheduler.schedule();
  const StepPlan second = scheduler.schedule_ahead();  // request 2 has all its tokens
  ASSERT_EQ(second.rows.size(), 1u);
  EXPECT_EQ(second.rows[0].computed, 3);
  EXPECT_EQ(second.rows[0].new_tokens, 1);
  EXPECT_TRUE(second.rows[0].sample);
  EXPECT_THAT(second.token_ids, ElementsAre(token_of_last_step));
  EXPECT_THROW(scheduler.schedule_ahead(), std::logic_error);
  EXPECT_EQ(scheduler.finish(answer(first, 7)).size(), 2u);
  EXPECT_EQ(scheduler.take_finished().at(0).id, 2u);
  const StepPlan third = scheduler.schedule_ahead();
  EXPECT_EQ(third.rows[0].computed, 4);
  scheduler.finish(answer(second, 8));
  scheduler.finish(answer(third, 9));
  EXPECT_THAT(scheduler.find(1)->outputs, ElementsAre(7, 8, 9));
  EXPECT_THAT(scheduler.schedule().token_ids, ElementsAre(9));
}

TEST_F(SchedulerTest, WhoEndsWhileTheNextStepRunsLeavesAfterItWithoutItsToken) {
  for (const bool by_eos : {true, false}) {
    Scheduler scheduler(config(), cache);
    ASSERT_EQ(scheduler.add(make_request(1, 3, 9)), std::nullopt);
    const StepPlan first = scheduler.schedule(), second = scheduler.schedule_ahead();
    EXPECT_EQ(scheduler.finish(answer(first, by_eos ? 5 : 7)).size(), 1u);
    if (!by_eos) scheduler.end(1, FinishReason::stop);
    EXPECT_TRUE(scheduler.cancel(1));  // too late to matter
    EXPECT_THAT(scheduler.take_finished(), IsEmpty());
    EXPECT_LT(arena.free_extents(), 16);
    EXPECT_TRUE(scheduler.schedule_ahead().empty());
    EXPECT_THAT(scheduler.finish(answer(second, 7)), IsEmpty());
    const std::vector<Request> finished = scheduler.take_finished();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].finish_reason, FinishReason::stop);
    EXPECT_EQ(finished[0].outputs.size(), 1u);
    EXPECT_EQ(arena.free_extents(), 16);
  }
}

TEST_F(SchedulerTest, WhoWouldHaveToGoIsNotKnownAhead) {
  Scheduler scheduler(config(), cache);
  for (RequestId id : {1, 2}) ASSERT_EQ(scheduler.add(make_request(id, 4, 56)), std::nullopt);
  int64_t refused = 0;
  std::optional<StepResult> flight;
  while (scheduler.has_work()) {
    if (!flight) flight = runner.run(scheduler.schedule());
    const int64_t preemptions = scheduler.preemptions();
    const StepPlan ahead = scheduler.schedule_ahead();
    EXPECT_EQ(scheduler.preemptions(), preemptions);
    refused += ahead.empty();
    std::optional<StepResult> next;
    if (!ahead.empty()) next = runner.run(ahead);
    scheduler.finish(*flight);
    flight = std::move(next);
    ASSERT_EQ(runner.error, "");
    ASSERT_EQ(scheduler.check_integrity(), "");
  }
  EXPECT_GT(scheduler.preemptions(), 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(scheduler.take_finished().size(), 2u);
}

TEST_F(SchedulerTest, AFailedStepEndsItsRequestsOnly) {
  Scheduler scheduler(config(), cache);
  for (RequestId id : {1, 2, 3}) ASSERT_EQ(scheduler.add(make_request(id, 4, 2)), std::nullopt);
  const StepPlan plan = scheduler.schedule();
  for (const PlanRow& row : plan.rows) scheduler.end(row.request, FinishReason::error);
  scheduler.finish({plan.step, {}});
  EXPECT_EQ(scheduler.take_finished().size(), 2u);
  EXPECT_EQ(scheduler.check_integrity(), "");
  while (scheduler.has_work()) step(scheduler);
  EXPECT_EQ(scheduler.take_finished()[0].finish_reason, FinishReason::length);
}

TEST_F(SchedulerTest, NoWorkNoPlan) {
  Scheduler scheduler(config(), cache);
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_TRUE(scheduler.schedule().empty());
  EXPECT_FALSE(scheduler.cancel(1));
}

TEST_F(SchedulerTest, MisuseIsABug) {
  Scheduler scheduler(config(), cache);
  ASSERT_EQ(scheduler.add(make_request(1, 2, 9)), std::nullopt);
  EXPECT_THROW((void)scheduler.add(make_request(1, 2, 9)), std::logic_error);
  EXPECT_THROW(scheduler.finish({0, {}}), std::logic_error);
  const StepPlan plan = scheduler.schedule();
  EXPECT_THROW(scheduler.schedule(), std::logic_error);
  EXPECT_THROW(scheduler.finish({plan.step + 1, {}}), std::logic_error);
  EXPECT_THROW(scheduler.finish({plan.step, {}}), std::logic_error);  // no token for a row that samples
}

TEST_F(SchedulerTest, RefusesAConfigThatMakesNoSense) {
  const auto with = [&](SchedulerConfig bad) { return [&, bad] { Scheduler scheduler(bad, cache); }; };
  EXPECT_THAT(with({.max_batched_tokens = 0}), ThrowsMessage<Error>(HasSubstr("max_batched_tokens is 0")));
  EXPECT_THAT(with({.max_batched_tokens = 8, .max_running = 0}), ThrowsMessage<Error>(HasSubstr("max_running is 0")));
  EXPECT_THAT(with({.max_batched_tokens = 8, .max_chunk = -1}), ThrowsMessage<Error>(HasSubstr("max_chunk is -1")));
  EXPECT_THROW(with({.max_batched_tokens = 9})(), std::logic_error);  // the cache was made for 8 tokens a step
}

}  // namespace
}  // namespace medley
