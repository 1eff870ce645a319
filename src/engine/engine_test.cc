// The public Engine over the repository's own models: text, events, refusals, cancelling, callbacks that throw.
#include "medley/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace medley {
namespace {

const std::filesystem::path source = MEDLEY_SOURCE_DIR;
const std::filesystem::path jamba = source / "models/demo-jamba";

struct Outcome {
  std::string text, error;
  std::vector<Token> tokens;
  std::vector<Event> events;
  Finish finish = Finish::none;
  Usage usage;
};

EventCallback into(Outcome& outcome) {
  return [&outcome](const Event& event) {
    EXPECT_EQ(outcome.finish, Finish::none) << "an event after the last one";
    outcome.events.push_back(event);
    outcome.text += event.text;
    outcome.tokens.insert(outcome.tokens.end(), event.tokens.begin(), event.tokens.end());
    outcome.finish = event.finish;
    outcome.error = event.error;
    outcome.usage = event.usage;
  };
}

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { engine = Engine::load(jamba, {.dtype = "f32", .threads = 2, .memory = 8 << 20}); }
  static void TearDownTestSuite() { engine.reset(); }

  static GenerationRequest greedy(const std::string& prompt, int32_t max_tokens = 60) {
    GenerationRequest request{.prompt = prompt};
    request.sampling.temperature = 0;
    request.sampling.max_tokens = max_tokens;
    return request;
  }
  static Outcome run(const GenerationRequest& request) {
    Outcome outcome;
    const Submitted submitted = engine->submit(request, into(outcome));
    EXPECT_TRUE(submitted) << submitted.error;
    engine->wait();
    return outcome;
  }
  static std::string refusal(const GenerationRequest& request) {
    const Submitted submitted = engine->submit(request, [](const Event&) { ADD_FAILURE() << "an event"; });
    EXPECT_FALSE(submitted);
    engine->wait();
    return submitted.error;
  }

  static std::unique_ptr<Engine> engine;
};
std::unique_ptr<Engine> EngineTest::engine;

TEST_F(EngineTest, AnswersAQuestionAndStopsAtEos) {
  GenerationRequest request = greedy("");
  request.messages = {{"user", "What is the capital of France?"}};
  const Outcome outcome = run(request);
  EXPECT_EQ(outcome.text, "The capital of France is Paris.");
  EXPECT_EQ(outcome.finish, Finish::stop);
  EXPECT_EQ(outcome.usage.generated_tokens, int64_t(outcome.tokens.size()));
  EXPECT_EQ(engine->detokenize({outcome.tokens.back().id}), "") << "the last token is EOS, no text";
}

TEST_F(EngineTest, OneEventATokenThenALastOne) {
  const Outcome outcome = run(greedy("Once upon a time", 7));
  ASSERT_EQ(outcome.events.size(), 8u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(outcome.events[i].tokens.size(), 1u);
    EXPECT_EQ(outcome.events[i].finish, Finish::none);
    EXPECT_FALSE(outcome.events[i].tokens[0].logprob);
  }
  EXPECT_TRUE(outcome.events[7].tokens.empty());
  EXPECT_EQ(outcome.finish, Finish::length);
  EXPECT_EQ(outcome.usage.prompt_tokens, int64_t(engine->tokenize("Once upon a time").size()));
  EXPECT_EQ(outcome.usage.generated_tokens, 7);
  EXPECT_GT(outcome.usage.seconds_to_first_token, 0);
  EXPECT_GE(outcome.usage.seconds, outcome.usage.seconds_to_first_token);
}

// The chat template writes BOS itself; the tokenizer, which puts one before plain text, adds no second one.
TEST_F(EngineTest, AConversationBeginsWithOneBos) {
  GenerationRequest request = greedy("", 1);
  request.messages = {{"user", "Hello"}};
  const auto plain = engine->tokenize("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(engine->detokenize({plain[0]}), "") << "BOS";
  EXPECT_EQ(run(request).usage.prompt_tokens, int64_t(plain.size()));
}

TEST_F(EngineTest, IdsGiveWhatTheirTextGives) {
  const Outcome text = run(greedy("A cat is"));
  GenerationRequest request = greedy("");
  request.prompt_ids = engine->tokenize("A cat is");
  EXPECT_EQ(run(request).text, text.text);
  std::vector<int32_t> ids;
  for (const Token& token : text.tokens) ids.push_back(token.id);
  EXPECT_EQ(engine->detokenize(ids), text.text);
}

TEST_F(EngineTest, StopStringsSpanTokensAndCutTheText) {
  const std::string whole = run(greedy("A cat is")).text;
  ASSERT_GT(whole.size(), 12u);
  // Every pair of places: most begin and end inside a token.
  for (const size_t begin : {0u, 1u, 3u, 6u}) {
    for (const size_t length : {1u, 2u, 5u, 9u}) {
      const std::string stop = whole.substr(begin, length);
      const size_t at = whole.find(stop);
      for (const bool include : {false, true}) {
        GenerationRequest request = greedy("A cat is");
        request.sampling.stop = {"never in the text", stop};
        request.sampling.include_stop = include;
        const Outcome outcome = run(request);
        EXPECT_EQ(outcome.text, whole.substr(0, include ? at + length : at)) << stop;
        EXPECT_EQ(outcome.finish, Finish::stop);
      }
    }
  }
}

TEST_F(EngineTest, TextHeldBackForAStopStringComesAtTheEnd) {
  const std::string whole = run(greedy("A cat is", 5)).text;
  GenerationRequest request = greedy("A cat is", 5);
  request.sampling.stop = {whole.substr(whole.size() - 2) + "\x01"};
  const Outcome outcome = run(request);
  EXPECT_EQ(outcome.text, whole);
  EXPECT_EQ(outcome.finish, Finish::length);
  EXPECT_EQ(outcome.events.back().text, whole.substr(whole.size() - 2));
}

TEST_F(EngineTest, StopTokensEndAndIgnoreEosGoesOn) {
  const Outcome whole = run(greedy("A cat is"));
  ASSERT_EQ(whole.finish, Finish::stop);
  GenerationRequest request = greedy("A cat is");
  request.sampling.stop_token_ids = {whole.tokens[2].id};
  const Outcome stopped = run(request);
  EXPECT_EQ(stopped.tokens.back().id, whole.tokens[2].id);
  EXPECT_TRUE(whole.text.starts_with(stopped.text));
  request = greedy("A cat is", int32_t(whole.tokens.size()) + 5);
  request.sampling.ignore_eos = true;
  const Outcome longer = run(request);
  EXPECT_EQ(longer.tokens.size(), whole.tokens.size() + 5);
  EXPECT_TRUE(longer.text.starts_with(whole.text));
}

TEST_F(EngineTest, LogprobsComeWhenAskedFor) {
  GenerationRequest request = greedy("A cat is", 3);
  request.sampling.logprobs = 2;
  for (const Token& token : run(request).tokens) {
    ASSERT_TRUE(token.logprob);
    ASSERT_EQ(token.top.size(), 2u);
    EXPECT_EQ(token.top[0].first, token.id) << "greedy takes the best";
    EXPECT_FLOAT_EQ(token.top[0].second, *token.logprob);
  }
}

// Sample i of n is the text that a request for sample i alone gives, whatever runs beside it; sample 0 is that of n
// = 1.
TEST_F(EngineTest, SamplesAreThoseOfRequestsOfTheirOwn) {
  GenerationRequest request = greedy("Once upon a time", 24);
  request.sampling.temperature = 1.2f;
  request.sampling.seed = 5;
  constexpr int32_t n = 80;  // more than run at a time
  std::vector<std::string> alone;
  for (int32_t i = 0; i < n; ++i) {
    request.sampling.sample = i;
    alone.push_back(run(request).text);
  }
  EXPECT_GT(std::set<std::string>(alone.begin(), alone.end()).size(), 70u);
  request.sampling.sample = 0;
  EXPECT_EQ(run(request).text, alone[0]);
  request.sampling.n = n;
  std::vector<Outcome> samples(n);
  Outcome beside;
  const Submitted submitted = engine->submit(request, [&](const Event& event) {
    ASSERT_LT(event.sample, n);
    into(samples[size_t(event.sample)])(event);
  });
  EXPECT_TRUE(submitted);
  EXPECT_TRUE(engine->submit(greedy("A cat is"), into(beside)));
  engine->wait();
  for (int32_t i = 0; i < n; ++i) {
    EXPECT_EQ(samples[size_t(i)].text, alone[size_t(i)]) << i;
    EXPECT_EQ(samples[size_t(i)].events[0].request, submitted.id);
    EXPECT_NE(samples[size_t(i)].finish, Finish::none);
  }
  EXPECT_EQ(beside.text, run(greedy("A cat is")).text);
  EXPECT_NE(beside.events[0].request, submitted.id);
}

TEST_F(EngineTest, CancelEndsAllSamples) {
  GenerationRequest request = greedy("Once upon a time", 900);
  request.sampling.temperature = 1;
  request.sampling.ignore_eos = true;
  request.sampling.n = 3;
  std::vector<Outcome> samples(3);
  std::promise<void> begun;
  const Submitted submitted = engine->submit(request, [&](const Event& event) {
    into(samples[size_t(event.sample)])(event);
    if (event.sample == 2 && samples[2].events.size() == 2) begun.set_value();
  });
  begun.get_future().wait();
  EXPECT_TRUE(engine->cancel(submitted.id));
  engine->wait();
  for (const Outcome& sample : samples) EXPECT_EQ(sample.finish, Finish::cancelled);
  EXPECT_FALSE(engine->cancel(submitted.id));
}

TEST_F(EngineTest, ACallbackThatThrowsEndsAllSamples) {
  GenerationRequest request = greedy("Once upon a time", 40);
  request.sampling.n = 3;
  std::vector<Outcome> samples(3);
  EXPECT_TRUE(engine->submit(request, [&](const Event& event) {
    into(samples[size_t(event.sample)])(event);
    if (event.sample == 1 && samples[1].tokens.size() == 2) throw std::runtime_error("no more paper");
  }));
  engine->wait();
  for (const Outcome& sample : samples) {
    EXPECT_EQ(sample.finish, Finish::error);
    EXPECT_THAT(sample.error, testing::HasSubstr("no more paper"));
  }
}

TEST_F(EngineTest, RefusesWhatCannotRunAndSaysWhy) {
  EXPECT_THAT(refusal({}), testing::HasSubstr("give exactly one"));
  GenerationRequest both = greedy("a");
  both.prompt_ids = {1};
  EXPECT_THAT(refusal(both), testing::HasSubstr("2 of prompt, prompt_ids and messages"));
  GenerationRequest unknown = greedy("");
  unknown.prompt_ids = {5, 2048};
  EXPECT_THAT(refusal(unknown), testing::HasSubstr("2048"));
  EXPECT_THAT(refusal(greedy("a", 5000)), testing::HasSubstr("1,024"));
  GenerationRequest cold = greedy("a");
  cold.sampling.temperature = -1;
  EXPECT_THAT(refusal(cold), testing::HasSubstr("temperature"));
  GenerationRequest none = greedy("a");
  none.sampling.n = 0;
  EXPECT_THAT(refusal(none), testing::HasSubstr("n is 0"));
  GenerationRequest long_samples = greedy("a", 5000);
  long_samples.sampling.n = 3;
  EXPECT_THAT(refusal(long_samples), testing::HasSubstr("1,024"));
  GenerationRequest empty_stop = greedy("a");
  empty_stop.sampling.stop = {""};
  EXPECT_THAT(refusal(empty_stop), testing::HasSubstr("stop"));
}

TEST_F(EngineTest, AFolderWithoutATokenizerTakesIds) {
  const auto ids_only = Engine::load(source / "tests/golden/llama", {.dtype = "f32", .threads = 1, .memory = 4 << 20});
  Outcome outcome;
  GenerationRequest request;
  request.prompt_ids = {1, 2, 3};
  request.sampling.max_tokens = 4;
  request.sampling.ignore_eos = true;
  EXPECT_TRUE(ids_only->submit(request, into(outcome)));
  ids_only->wait();
  EXPECT_EQ(outcome.tokens.size(), 4u);
  EXPECT_EQ(outcome.text, "");
  EXPECT_THAT(ids_only->submit({.prompt = "text"}, {}).error, testing::HasSubstr("no tokenizer.json"));
  request.sampling.stop = {"x"};
  EXPECT_THAT(ids_only->submit(request, {}).error, testing::HasSubstr("no tokenizer.json"));
  EXPECT_THROW(ids_only->tokenize("text"), std::runtime_error);
  EXPECT_THROW(ids_only->detokenize({1}), std::runtime_error);
}

std::string load_error(const std::filesystem::path& model, const EngineOptions& options) {
  try {
    Engine::load(model, options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(EngineActivations, Int8NeedsWeightsInBlocksAndTheCpu) {
  const std::filesystem::path llama = source / "tests/golden/gguf_llama";
  EXPECT_EQ(load_error(llama, {.activations = "int4"}), "activations \"int4\" are not known; use auto or int8");
  EXPECT_EQ(load_error(llama, {.backend = "cuda", .activations = "int8"}),
            "activations int8: backend cuda has no kernels for them; use backend cpu, or activations auto");
  EXPECT_THAT(load_error(jamba, {.backend = "cpu", .activations = "int8"}),
              testing::AllOf(testing::HasSubstr("demo-jamba"), testing::HasSubstr("quantised in blocks"),
                             testing::HasSubstr("activations auto")));
  EXPECT_THAT(load_error(jamba, {.backend = "cpu", .activations = "int8", .random_weights = true}),
              testing::HasSubstr("quantised in blocks"));
}

TEST(EngineBlocks, OptionsThatCannotBeAreRefused) {
  const std::filesystem::path llama = source / "tests/golden/gguf_llama";
  EXPECT_EQ(load_error(llama, {.backend = "cpu", .blocks = "drop"}),
            "blocks \"drop\" are not known; use auto, keep or expand");
  EXPECT_EQ(load_error(llama, {.backend = "cpu", .activations = "int8", .blocks = "expand"}),
            "activations int8 need weights in blocks; use blocks keep, or activations auto");
}

TEST(EngineActivations, Int8IsForLinearLayersOfBlocks) {
  for (const char* level : {"ref", "simd", ""}) {
    EngineOptions options{.backend = "cpu", .activations = "int8", .threads = 1, .memory = 4 << 20, .kernels = level};
    const auto dense = Engine::load(source / "tests/golden/gguf_llama", options);
    EXPECT_THAT(dense->kernels(), testing::Contains(testing::HasSubstr(".linear_int8 x ")));
    const auto experts = Engine::load(source / "tests/golden/gguf_mixtral", options);
    EXPECT_THAT(experts->kernels(), testing::Contains(testing::HasSubstr(".grouped_linear_int8 ")));
    for (const std::string& kernel : experts->kernels())
      if (kernel.find("linear ") != std::string::npos) {
        EXPECT_THAT(kernel, testing::ContainsRegex("weight (f32|f16|bf16) "));
      }
    options.activations = "auto";
    EXPECT_THAT(Engine::load(source / "tests/golden/gguf_llama", options)->kernels(),
                testing::Not(testing::Contains(testing::HasSubstr("int8"))));
  }
}

TEST_F(EngineTest, CancelEndsARequestOnce) {
  Outcome outcome;
  std::promise<void> begun;
  GenerationRequest request = greedy("Once upon a time", 900);
  request.sampling.ignore_eos = true;
  const Submitted submitted = engine->submit(request, [&, record = into(outcome)](const Event& event) {
    record(event);
    if (outcome.events.size() == 3) begun.set_value();
  });
  begun.get_future().wait();
  EXPECT_TRUE(engine->cancel(submitted.id));
  engine->wait();
  EXPECT_EQ(outcome.finish, Finish::cancelled);
  EXPECT_LT(outcome.tokens.size(), 900u);
  EXPECT_FALSE(engine->cancel(submitted.id));
  EXPECT_FALSE(engine->cancel(12345678));
  EXPECT_EQ(engine->cache().used_bytes, 0u);
}

TEST_F(EngineTest, ACallbackThatThrowsEndsItsRequestOnly) {
  Outcome good, bad;
  GenerationRequest request = greedy("Once upon a time", 40);
  const std::string expected = run(request).text;
  EXPECT_TRUE(engine->submit(request, [&, record = into(bad)](const Event& event) {
    record(event);
    if (bad.tokens.size() == 2) throw std::runtime_error("no more paper");
  }));
  EXPECT_TRUE(engine->submit(request, into(good)));
  engine->wait();
  EXPECT_EQ(good.text, expected);
  EXPECT_EQ(bad.finish, Finish::error);
  EXPECT_THAT(bad.error, testing::HasSubstr("no more paper"));
  EXPECT_EQ(bad.tokens.size(), 2u);
}

TEST_F(EngineTest, CallbacksMaySubmitAndCancel) {
  Outcome first, second;
  const GenerationRequest request = greedy("A cat is", 10);
  const std::string expected = run(request).text;
  EXPECT_TRUE(engine->submit(request, [&, record = into(first)](const Event& event) {
    record(event);
    if (first.tokens.size() != 4 || !second.events.empty() || event.finish != Finish::none) return;
    EXPECT_TRUE(engine->submit(request, into(second)));
    EXPECT_THROW(engine->wait(), std::runtime_error) << "it would wait for itself";
    EXPECT_TRUE(engine->cancel(event.request));
  }));
  engine->wait();
  EXPECT_EQ(first.finish, Finish::cancelled);
  EXPECT_EQ(first.tokens.size(), 4u);
  EXPECT_EQ(second.text, expected);
}

TEST_F(EngineTest, ManyThreadsSubmitAtATime) {
  const std::string expected = run(greedy("A cat is", 20)).text;
  std::vector<Outcome> outcomes(24);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = t; i < outcomes.size(); i += 4) {
        const Submitted submitted = engine->submit(greedy("A cat is", 20), into(outcomes[i]));
        EXPECT_TRUE(submitted) << submitted.error;
        if (i % 3 == 2) engine->cancel(submitted.id);
        engine->cache();
      }
      engine->wait();
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].finish == Finish::cancelled) {
      EXPECT_EQ(i % 3, 2u);
      EXPECT_TRUE(expected.starts_with(outcomes[i].text));
    } else {
      EXPECT_EQ(outcomes[i].text, expected);
    }
  }
}

TEST_F(EngineTest, TheDestructorCancels) {
  Outcome outcome;
  {
    const auto engine_of_its_own = Engine::load(jamba, {.threads = 1, .memory = 8 << 20});
    GenerationRequest request = greedy("Once upon a time", 1000);
    request.sampling.ignore_eos = true;
    EXPECT_TRUE(engine_of_its_own->submit(request, into(outcome)));
  }
  EXPECT_EQ(outcome.finish, Finish::cancelled);
}

TEST_F(EngineTest, CacheIsCountedAndKernelsAreNamed) {
  run(greedy("A cat is", 5));
  const CacheStats cache = engine->cache();
  EXPECT_GT(cache.peak_bytes, 0u);
  EXPECT_LE(cache.peak_bytes, cache.capacity_bytes);
  EXPECT_EQ(cache.used_bytes, 0u);
  EXPECT_FALSE(engine->kernels().empty());
  EXPECT_FLOAT_EQ(engine->default_sampling().temperature, 0.6f) << "generation_config.json says so";
}

}  // namespace
}  // namespace medley
