// The device's sampler against the host's: for the same logits the same tokens, in any company, in any vocabulary.
#include "runner/device_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <random>

namespace medley {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
using Ids = std::vector<int32_t>;

class DeviceSamplerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = cuda_missing(); !missing.empty()) GTEST_SKIP() << missing;
    stream_ = Stream(Device::cuda);
  }

  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[std::uniform_int_distribution<size_t>(0, from.size() - 1)(random_)];
  }
  int32_t below(int64_t end) { return std::uniform_int_distribution<int32_t>(0, int32_t(end - 1))(random_); }

  // Of many shapes: wide, flat, of few values (all ties), mostly masked, all the same.
  void fill(std::span<float> logits) {
    const int kind = below(6);
    std::normal_distribution<float> normal(0, pick({0.1f, 1.0f, 4.0f}));
    for (float& logit : logits) {
      logit = normal(random_);
      if (kind == 1) logit = std::round(logit);
      if (kind == 2 && below(10) > 0) logit = -inf;
      if (kind == 3) logit = -2.5f;
      if (kind == 4) logit = pick({0.0f, -0.0f, -1e-30f});
    }
    if (kind == 2) logits[size_t(below(int64_t(logits.size())))] = 1;
  }
  SamplingParams params(int64_t vocab) {
    SamplingParams params;
    params.temperature = pick({0.0f, 0.3f, 1.0f, 1.0f, 2.0f});
    params.top_k = pick({0, 0, 1, 7, 50, 1 << 20});
    params.top_p = pick({1.0f, 1.0f, 0.5f, 0.9f, 0.999f, 1e-6f});
    params.min_p = pick({0.0f, 0.0f, 0.02f, 1.0f});
    params.repetition_penalty = pick({1.0f, 1.0f, 1.3f, 0.7f});
    params.presence_penalty = pick({0.0f, 0.0f, 0.6f});
    params.frequency_penalty = pick({0.0f, 0.0f, 0.31f});
    for (int i = below(3) == 0 ? below(40) : 0; i > 0; --i)
      params.logit_bias.emplace_back(below(vocab), float(below(200) - 100) / 7);
    if (params.logit_bias.size() > 3) params.logit_bias[3].first = params.logit_bias[0].first;
    params.seed = uint64_t(below(1 << 30)) << 20;
    params.sample = below(3);
    if (below(8) == 0) params.logprobs = 2;
    return params;
  }
  Ids tokens(int64_t vocab, int count) {
    Ids ids;
    for (int i = 0; i < count; ++i) ids.push_back(below(std::min<int64_t>(vocab, 50)));
    return ids;
  }

  TensorView up(const std::vector<float>& logits, int64_t vocab) {
    device_.emplace_back(logits.size() * sizeof(float), Device::cuda);
    copy_bytes(device_.back().data(), logits.data(), device_.back().bytes());
    return device_.back().view(DType::f32, {int64_t(logits.size()) / vocab, vocab});
  }

  std::mt19937 random_{7};
  ThreadPool threads_{2};
  Stream stream_;
  std::vector<Buffer> device_;
};

TensorView rows_of(std::vector<float>& logits, int64_t vocab) {
  return TensorView(logits.data(), DType::f32, {int64_t(logits.size()) / vocab, vocab});
}

TEST_F(DeviceSamplerTest, ChoosesWhatTheHostChooses) {
  for (const int64_t vocab : {1, 2, 31, 96, 1000, 4097, 8192, 32000, 50280, 102400, 151936, 262208, 500001}) {
    const int slots = vocab > 20000 ? 12 : 40, steps = vocab > 20000 ? 4 : 8;
    HostSampler host(vocab, threads_);
    DeviceSampler device(vocab, slots, threads_, stream_.get());
    std::vector<SamplingParams> asked;
    for (int32_t slot = 0; slot < slots; ++slot) {
      asked.push_back(params(vocab));
      const Ids prompt = tokens(vocab, below(60)), output = tokens(vocab, below(20));
      host.start(slot, asked.back(), prompt, output);
      device.start(slot, asked.back(), prompt, output);
    }
    for (int step = 0; step < steps; ++step) {
      std::vector<SampleRow> rows;
      for (int32_t slot = 0; slot < slots; ++slot)
        if (step == 0 || below(4) > 0) rows.push_back({RequestId(100 + slot), slot, int64_t(rows.size())});
      std::shuffle(rows.begin(), rows.end(), random_);
      std::vector<float> logits(rows.size() * size_t(vocab));
      for (size_t r = 0; r < rows.size(); ++r) fill(std::span(logits).subspan(r * size_t(vocab), size_t(vocab)));
      const std::vector<Sampled> want = host.sample(rows_of(logits, vocab), rows);
      const std::vector<Sampled> got = device.sample(up(logits, vocab), rows);
      ASSERT_EQ(got.size(), want.size());
      Ids last(size_t(slots), 0);
      copy_bytes(last.data(), device.last_tokens().data, last.size() * sizeof(int32_t));
      bool all = true;
      for (size_t r = 0; r < rows.size(); ++r) {
        const SamplingParams& p = asked[size_t(rows[r].slot)];
        ASSERT_EQ(got[r].error, want[r].error);
        ASSERT_EQ(got[r].request, want[r].request);
        ASSERT_EQ(got[r].token, want[r].token)
            << "vocabulary " << vocab << " step " << step << " temperature " << p.temperature << " top_k " << p.top_k
            << " top_p " << p.top_p << " min_p " << p.min_p << " penalties " << p.repetition_penalty << " "
            << p.presence_penalty << " " << p.frequency_penalty << " biases " << p.logit_bias.size();
        ASSERT_EQ(got[r].logprob, want[r].logprob);
        ASSERT_EQ(got[r].top.size(), want[r].top.size());
        all = all && !p.logprobs;
        if (!p.logprobs) {
          ASSERT_EQ(last[size_t(rows[r].slot)], want[r].token);
        }
      }
      EXPECT_EQ(device.tokens_in_place(), all);
    }
    device_.clear();
  }
}

TEST_F(DeviceSamplerTest, CompanyDoesNotMatter) {
  constexpr int64_t vocab = 32000;
  constexpr int32_t slots = 200;
  std::vector<float> logits(slots * vocab);
  DeviceSampler together(vocab, slots, threads_, stream_.get());
  std::vector<SamplingParams> asked;
  std::vector<SampleRow> rows;
  for (int32_t slot = 0; slot < slots; ++slot) {
    fill(std::span(logits).subspan(size_t(slot * vocab), vocab));
    asked.push_back(params(vocab));
    together.start(slot, asked.back(), Ids{1, 2, 3}, Ids{3});
    rows.push_back({RequestId(slot + 1), slot, slot});
  }
  const TensorView device = up(logits, vocab);
  const std::vector<Sampled> all = together.sample(device, rows);
  DeviceSampler alone(vocab, 1, threads_, stream_.get());
  for (int32_t slot = 0; slot < slots; ++slot) {
    alone.start(0, asked[size_t(slot)], Ids{1, 2, 3}, Ids{3});
    const SampleRow row{RequestId(slot + 1), 0, slot};
    ASSERT_EQ(alone.sample(device, std::span(&row, 1))[0].token, all[size_t(slot)].token) << slot;
  }
}

// Two launches under way, the second of which counts what the first has written.
TEST_F(DeviceSamplerTest, ASecondLaunchSeesTheFirst) {
  constexpr int64_t vocab = 9000;
  std::vector<float> logits(2 * vocab, 0.0f);
  logits[5] = logits[vocab + 5] = 3;
  logits[8000] = logits[vocab + 8000] = 2.5f;
  SamplingParams params;
  params.temperature = 0;
  params.presence_penalty = 1;
  DeviceSampler sampler(vocab, 3, threads_, stream_.get());
  sampler.start(2, params, {});
  const TensorView device = up(logits, vocab);
  for (int64_t row = 0; row < 2; ++row) {
    const SampleRow one{7, 2, row};
    sampler.launch(device, std::span(&one, 1));
  }
  EXPECT_EQ(sampler.collect()[0].token, 5);
  EXPECT_EQ(sampler.collect()[0].token, 8000);
  // In the hands of another request the slot has no past.
  sampler.start(2, params, Ids{5});
  const SampleRow one{8, 2, 1};
  EXPECT_EQ(sampler.sample(device, std::span(&one, 1))[0].token, 5);
}

TEST_F(DeviceSamplerTest, LogitsThatAreNotFiniteEndTheirRequestOnly) {
  for (const int64_t vocab : {3, 70000}) {
    DeviceSampler sampler(vocab, 5, threads_, stream_.get());
    HostSampler host(vocab, threads_);
    std::vector<float> logits(size_t(5 * vocab), 0.0f);
    const auto at = [&](int64_t row, int64_t token) -> float& { return logits[size_t(row * vocab + token)]; };
    at(0, vocab - 1) = std::numeric_limits<float>::quiet_NaN();
    at(1, 1) = 1;
    at(2, vocab - 2) = at(2, vocab - 1) = inf;
    std::fill_n(logits.begin() + 3 * vocab, vocab, -inf);
    at(4, 0) = 1e20f;
    std::vector<SampleRow> rows;
    for (int32_t slot = 0; slot < 5; ++slot) {
      SamplingParams params;
      params.temperature = slot % 2 == 0 ? 0.0f : 1.0f;
      params.top_k = slot == 1 ? 1 : 0;
      if (slot == 4) params.repetition_penalty = 1e-30f;
      for (Sampler* each : {static_cast<Sampler*>(&sampler), static_cast<Sampler*>(&host)})
        each->start(slot, params, Ids{0});
      rows.push_back({RequestId(slot), slot, slot});
    }
    const std::vector<Sampled> got = sampler.sample(up(logits, vocab), rows);
    const std::vector<Sampled> want = host.sample(rows_of(logits, vocab), rows);
    for (size_t r = 0; r < 5; ++r) EXPECT_EQ(got[r].error, want[r].error) << r;
    EXPECT_EQ(got[1].token, 1);
    EXPECT_THAT(got[4].error, testing::HasSubstr("after bias and penalties"));
    EXPECT_TRUE(sampler.sample(up(logits, vocab), {}).empty());
  }
}

TEST_F(DeviceSamplerTest, TokensAreTakenFromTheirSlots) {
  Workspace workspace(Device::cuda);
  ExecContext exec{threads_, workspace, stream_.get()};
  const Ids ids{3, 0, 5, 0}, from{-1, 2, -1, 0}, last{70, 71, 72};
  std::vector<TensorView> views;
  for (const Ids* one : {&ids, &from, &last}) {
    device_.emplace_back(one->size() * sizeof(int32_t), Device::cuda);
    copy_bytes(device_.back().data(), one->data(), one->size() * sizeof(int32_t));
    views.push_back(device_.back().view(DType::i32, {int64_t(one->size())}));
  }
  take_tokens({views[0], views[1], views[2]}, exec);
  Ids got(4);
  copy_bytes(got.data(), views[0].data, 16, stream_.get());
  EXPECT_EQ(got, (Ids{3, 72, 5, 70}));
}

// Not a test: prints microseconds a launch takes, its tables and copies included, in a queue of two.
TEST_F(DeviceSamplerTest, DISABLED_Times) {
  constexpr int64_t vocab = 151936;
  constexpr int launches = 200;
  std::vector<float> logits(size_t(128 * vocab));
  std::normal_distribution<float> normal(0, 3);
  for (float& logit : logits) logit = normal(random_);
  const TensorView device = up(logits, vocab);
  struct Case {
    const char* name;
    SamplingParams params;
  };
  for (const auto& [name, params] :
       {Case{"greedy", {.temperature = 0}}, Case{"temperature", {}}, Case{"top_k 50", {.top_k = 50}},
        Case{"top_p 0.95", {.top_p = 0.95f}}, Case{"top_k, top_p", {.top_k = 50, .top_p = 0.95f}},
        Case{"min_p, penalties", {.min_p = 0.05f, .repetition_penalty = 1.1f}}}) {
    for (const int32_t rows : {1, 32, 128}) {
      DeviceSampler sampler(vocab, rows, threads_, stream_.get());
      std::vector<SampleRow> all;
      for (int32_t slot = 0; slot < rows; ++slot) {
        sampler.start(slot, params, tokens(vocab, 1000));
        all.push_back({RequestId(slot + 1), slot, slot});
      }
      sampler.launch(device, all);
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < launches; ++i) {
        sampler.launch(device, all);
        sampler.collect();
      }
      sampler.collect();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      printf("%-16s rows %3d: %7.1f us\n", name, rows, seconds.count() / launches * 1e6);
    }
  }
}

}  // namespace
}  // namespace medley
