// Two real GGUF files, fetched from PyPI, against what llama.cpp made of them (tools/record_gguf_real.py).
//
// Greedy continuations count up to the first position where llama.cpp's two best logits are closer than the two
// arithmetics can tell apart: twice the distance of a logit, for both of a pair may move. Against llama.cpp on the same
// values as float32 the distance is measured here, on the recorded logits, and next to nothing. Against llama.cpp on
// the blocks it is what rounding activations to 8 bits moves llama.cpp's own logits by.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../golden/golden_model.h"
#include "medley/engine.h"

namespace medley {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::filesystem::path source(MEDLEY_SOURCE_DIR);

class GgufRealTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    recorded_ = json::parse(std::ifstream(source / "tests/gguf_real" / (GetParam() + ".json")));
    const std::filesystem::path folder(MEDLEY_GGUF_REAL);
    path_ = folder / recorded_["file"].get<std::string>();
    if (std::filesystem::exists(path_)) return;
    std::ifstream missing(folder / "missing.txt");
    for (std::string line; std::getline(missing, line);)
      if (line.starts_with(path_.filename().string())) GTEST_SKIP() << line;
    FAIL() << path_ << " is not there, and nothing says why: tools/fetch_gguf.py fetches it";
  }

  std::unique_ptr<EngineCore> load(const char* activations = "auto") const {
    EngineOptions options;
    options.backend = "cpu";
    options.dtype = "f32";
    options.activations = activations;
    options.memory = size_t(256) << 20;
    return EngineCore::load(path_, options, 0);
  }

  json recorded_;
  std::filesystem::path path_;
};

TEST_P(GgufRealTest, HardStringsGiveLlamaCppsTokens) {
  EngineOptions options;
  options.backend = "cpu";
  options.memory = size_t(64) << 20;
  const auto engine = Engine::load(path_, options);
  ASSERT_EQ(recorded_["strings"].size(), 40);
  for (const json& string : recorded_["strings"])
    EXPECT_EQ(engine->tokenize(string["text"].get<std::string>()), string["ids"].get<Ids>()) << string["text"];
  for (const json& prompt : recorded_["prompts"])
    EXPECT_EQ(engine->tokenize(prompt["text"].get<std::string>()), prompt["ids"].get<Ids>()) << prompt["text"];
}

// Tokens that agree, and the gap where they part.
struct Agreement {
  size_t same = 0;
  double gap = INFINITY, smallest = INFINITY;  // there; of those before
};
Agreement compare_greedy(const Ids& got, const json& run) {
  const Ids want = run["tokens"].get<Ids>();
  const auto gaps = run["gaps"].get<std::vector<double>>();
  Agreement agreement;
  while (agreement.same < want.size() && got.at(agreement.same) == want[agreement.same])
    agreement.smallest = std::min(agreement.smallest, gaps[agreement.same++]);
  if (agreement.same < want.size()) agreement.gap = gaps[agreement.same];
  return agreement;
}

TEST_P(GgufRealTest, GreedyContinuationsAreLlamaCppsWhereItDecides) {
  const auto engine = load();
  const json &prompts = recorded_["prompts"], &float32 = recorded_["float32"], &blocks = recorded_["blocks"];
  ASSERT_EQ(prompts.size(), 10);
  const auto vocab = size_t(engine->info().vocab_size);
  double apart = 0, deviation = 0;
  std::vector<Request> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Ids ids = prompts[i]["ids"].get<Ids>();
    const std::vector<float> logits = run_logits(*engine, ids);
    const Ids sampled = float32[i]["logit_ids"].get<Ids>();
    for (size_t s = 0; s < sampled.size(); ++s) {
      const double want = float32[i]["logits"][s];
      apart = std::max(apart, std::abs(logits[(ids.size() - 1) * vocab + size_t(sampled[s])] - want));
      deviation = std::max(deviation, std::abs(want));
    }
    Request request = greedy_request(RequestId(i + 1), ids, 32);
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  std::cout << fmt::format("logits at most {:.1e} from llama.cpp's on the same values as float32 (they reach {:.0f})\n",
                           apart, deviation);
  EXPECT_LT(apart, 1e-3 * deviation);
  const double distance = recorded_["distance"];
  const std::vector<Ids> got = run_requests(*engine, std::move(requests));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Agreement exact = compare_greedy(got[i], float32[i]), rounded = compare_greedy(got[i], blocks[i]);
    std::cout << fmt::format("{:.36}: float32 {} of 32, smallest gap {:.4f}; blocks {} of 32",
                             prompts[i]["text"].dump(), exact.same, exact.smallest, rounded.same);
    if (rounded.same < 32)
      std::cout << fmt::format(", gap there {:.3f} (undecided below {:.1f})", rounded.gap, 2 * distance);
    std::cout << "\n";
    EXPECT_TRUE(exact.same == 32 || exact.gap < 2 * apart) << prompts[i]["text"] << ", gap " << exact.gap;
    EXPECT_TRUE(rounded.same == 32 || rounded.gap < 2 * distance) << prompts[i]["text"] << ", gap " << rounded.gap;
  }
}

// Both round activations to 8 bits, in other groups and with scales of other types: the errors that this makes must be
// of one size.
TEST_P(GgufRealTest, ActivationsInInt8AreAsFarFromFloat32AsLlamaCpps) {
  const auto engine = load("int8");
  const json &prompts = recorded_["prompts"], &float32 = recorded_["float32"], &blocks = recorded_["blocks"];
  const auto vocab = size_t(engine->info().vocab_size);
  double ours = 0, theirs = 0;
  int count = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Ids ids = prompts[i]["ids"].get<Ids>(), sampled = float32[i]["logit_ids"].get<Ids>(),
              also = blocks[i]["logit_ids"].get<Ids>();
    const std::vector<float> logits = run_logits(*engine, ids);
    for (size_t s = 0; s < sampled.size(); ++s) {
      const auto same = std::find(also.begin(), also.end(), sampled[s]);
      if (same == also.end()) continue;  // not recorded in both runs
      const double exact = float32[i]["logits"][s], rounded = blocks[i]["logits"][size_t(same - also.begin())];
      ours += std::pow(logits[(ids.size() - 1) * vocab + size_t(sampled[s])] - exact, 2);
      theirs += std::pow(rounded - exact, 2);
      ++count;
    }
  }
  ours = std::sqrt(ours / count), theirs = std::sqrt(theirs / count);
  std::cout << fmt::format("logits from float32's, root of the mean square over {}: medley {:.3f}, llama.cpp {:.3f}\n",
                           count, ours, theirs);
  EXPECT_GT(count, 200);
  EXPECT_GT(ours, 0) << "nothing was rounded";
  EXPECT_LT(ours, 1.5 * theirs);
}

INSTANTIATE_TEST_SUITE_P(All, GgufRealTest, testing::Values("smollm2", "gemma3"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace medley
