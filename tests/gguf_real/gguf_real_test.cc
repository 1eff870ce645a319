// Two real GGUF files, fetched from PyPI, against what llama.cpp made of them (tools/record_gguf_real.py).
//
// Greedy continuations count up to the first position where llama.cpp's two best logits are closer than the two
// arithmetics can tell apart. Against llama.cpp on the same values as float32 that is twice the largest distance of a
// recorded logit, for both of a pair may move, and next to nothing. Against llama.cpp on the blocks it is four standard
// deviations of a gap, from what rounding activations to 8 bits moves llama.cpp's own logits by.
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

// A logit that was recorded in both of llama.cpp's runs.
struct RecordedLogit {
  size_t prompt;
  int32_t id;
  double exact, rounded;
};
std::vector<RecordedLogit> shared_logits(const json& float32, const json& blocks) {
  std::vector<RecordedLogit> shared;
  for (size_t i = 0; i < float32.size(); ++i) {
    const Ids ids = float32[i]["logit_ids"].get<Ids>(), others = blocks[i]["logit_ids"].get<Ids>();
    for (size_t s = 0; s < ids.size(); ++s)
      if (const auto same = std::find(others.begin(), others.end(), ids[s]); same != others.end())
        shared.push_back({i, ids[s], float32[i]["logits"][s], blocks[i]["logits"][size_t(same - others.begin())]});
  }
  return shared;
}
// Root of the mean square of got(logit) - exact.
template <class Got>
double distance(const std::vector<RecordedLogit>& logits, Got got) {
  double sum = 0;
  for (const RecordedLogit& logit : logits) sum += std::pow(got(logit) - logit.exact, 2);
  return std::sqrt(sum / double(logits.size()));
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
  // Of the difference of two logits that each move by so much.
  const double undecided =
      4 * std::sqrt(2.0) * distance(shared_logits(float32, blocks), [](const auto& logit) { return logit.rounded; });
  const std::vector<Ids> got = run_requests(*engine, std::move(requests));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Agreement exact = compare_greedy(got[i], float32[i]), rounded = compare_greedy(got[i], blocks[i]);
    std::cout << fmt::format("{:.36}: float32 {} of 32, smallest gap {:.4f}; blocks {} of 32",
                             prompts[i]["text"].dump(), exact.same, exact.smallest, rounded.same);
    if (rounded.same < 32)
      std::cout << fmt::format(", gap there {:.3f} (undecided below {:.2f})", rounded.gap, undecided);
    std::cout << "\n";
    EXPECT_TRUE(exact.same == 32 || exact.gap < 2 * apart) << prompts[i]["text"] << ", gap " << exact.gap;
    EXPECT_TRUE(rounded.same == 32 || rounded.gap < undecided) << prompts[i]["text"] << ", gap " << rounded.gap;
  }
}

// Both round activations to 8 bits, in other groups and with scales of other types: the errors that this makes must be
// of one size.
TEST_P(GgufRealTest, ActivationsInInt8AreAsFarFromFloat32AsLlamaCpps) {
  const auto engine = load("int8");
  const auto vocab = size_t(engine->info().vocab_size);
  std::vector<std::vector<float>> last;
  for (const json& prompt : recorded_["prompts"]) {
    const std::vector<float> logits = run_logits(*engine, prompt["ids"].get<Ids>());
    last.emplace_back(logits.end() - std::ptrdiff_t(vocab), logits.end());
  }
  const std::vector<RecordedLogit> shared = shared_logits(recorded_["float32"], recorded_["blocks"]);
  const double ours = distance(shared, [&](const auto&logit) { return last[logit.prompt][size_t(logit.id)]; }),
               theirs = distance(shared, [](const auto&logit) { return logit.rounded; });
  std::cout << fmt::format("logits from float32's, root of the mean square over {}: medley {:.3f}, llama.cpp {:.3f}\n",
                           shared.size(), ours, theirs);
  EXPECT_GT(shared.size(), 200);
  EXPECT_GT(ours, 0) << "nothing was rounded";
  EXPECT_LT(ours, 1.5 * theirs);
}

INSTANTIATE_TEST_SUITE_P(All, GgufRealTest, testing::Values("smollm2", "gemma3"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace medley
