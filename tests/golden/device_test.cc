// The CPU and the CUDA device compute the same function at the sizes of published models, which the tiny golden
// checkpoints do not reach: two layers of each, random weights. Needs a device.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "golden_model.h"
#include "models/registry.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

struct Sized {
  const char* config;
  std::vector<std::pair<const char*, int>> changes;  // of the published config, to make it small enough for a CPU
  std::vector<std::string> hopper;                   // kernels that bf16 must run on there
};

void PrintTo(const Sized& sized, std::ostream* out) {  // in the list of tests
  *out << sized.config;
}

// "sm90.linear x bf16, ..." begins with the kernel's name.
bool ran(const EngineCore& engine, const std::string& kernel) {
  for (const std::string& line : engine.kernels())
    if (line.starts_with(kernel + " ")) return true;
  return false;
}

class DeviceTest : public testing::TestWithParam<Sized> {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
    nlohmann::json config = read_config(std::filesystem::path(MEDLEY_SOURCE_DIR) / "configs" / GetParam().config);
    config["num_hidden_layers"] = 2;
    config["vocab_size"] = 1024;
    for (const auto& [field, value] : GetParam().changes) config[field] = value;
    path_ = std::filesystem::temp_directory_path() / fmt::format("medley_device_test_{}.json", getpid());
    std::ofstream(path_) << config;
  }
  void TearDown() override {
    if (!path_.empty()) std::filesystem::remove(path_);
  }
  std::unique_ptr<EngineCore> load(const char* backend, const char* dtype, int64_t chunk) const {
    EngineOptions options;
    options.backend = backend;
    options.dtype = dtype;
    options.memory = size_t(256) << 20;
    options.max_batched_tokens = 1024;
    options.random_weights = true;
    return EngineCore::load(path_, options, chunk);
  }
  // Root of the mean square of the difference, as a share of the logits' own.
  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double error = 0, size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
      size += double(a[i]) * a[i];
    }
    return std::sqrt(error / size);  // NaN when one is
  }

  std::filesystem::path path_;
};

TEST_P(DeviceTest, LogitsAreTheCpusAtRealSizes) {
  std::mt19937 random(3);
  std::vector<int32_t> prompt(530);  // longer than a piece of attention's context
  for (int32_t& id : prompt) id = int32_t(random() % 1024);
  // float32 differs by rounding of sums of up to 12,288 terms (1.1e-5 was seen). bf16 rounds inputs of products to 2^-9
  // on both sides, in places where the float32 values before them differ in the last bit (7.7e-3); and a token on the
  // verge of another expert takes it on one side only (5.5e-2 over all positions).
  // Both in the same chunks: the made-up weights of MLA's two paths belong to different functions.
  for (const auto& [dtype, bound] : {std::pair{"f32", 1e-4}, std::pair{"bf16", 1e-1}}) {
    for (const int64_t chunk : {0, 97, 1}) {
      const std::vector<float> expected = run_logits(*load("cpu", dtype, chunk), prompt);
      const auto engine = load("cuda", dtype, chunk);
      const double apart = distance(expected, run_logits(*engine, prompt));
      EXPECT_LE(apart, bound) << dtype << ", chunk " << chunk;
      std::cout << fmt::format("{} {} chunk {}: {:.2e}\n", GetParam().config, dtype, chunk, apart);
      if (std::string(dtype) != "bf16") continue;
      for (const std::string& kernel : GetParam().hopper) EXPECT_TRUE(ran(*engine, kernel)) << kernel;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceTest,
    testing::Values(Sized{"llama-3-8b.json", {}, {"sm90.linear", "sm90.gqa_attention"}},
                    Sized{"qwen3-30b-a3b.json",
                          {{"num_experts", 32}},
                          {"sm90.gated_grouped_linear", "sm90.grouped_linear", "sm90.gqa_attention"}},
                    Sized{"deepseek-v2-lite.json",
                          {},
                          {"sm90.mla_decode", "sm90.piece_attention", "sm90.headwise_linear", "sm90.grouped_linear"}},
                    Sized{"deepseek-v2.json", {{"n_routed_experts", 16}}, {"sm90.mla_decode", "sm90.headwise_linear"}},
                    Sized{"mamba2-2.7b.json", {}, {"sm90.linear"}},
                    Sized{"mamba-2.8b.json", {{"n_layer", 2}}, {"sm90.linear"}}),
    [](const auto& test) {
      std::string name = test.param.config;
      for (char& letter : name)
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
      return name;
    });

}  // namespace
}  // namespace medley
