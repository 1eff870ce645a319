// The benchmark runs every family without its weights.
#include "engine/model_bench.h"

#include <gtest/gtest.h>

#include "models/registry.h"

namespace medley {
namespace {

TEST(ModelBench, EveryFamilyDecodesWithRandomWeights) {
  const std::filesystem::path golden = std::filesystem::path(MEDLEY_SOURCE_DIR) / "tests/golden";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename());
    LoadedModel loaded = load_model(entry.path() / "config.json",
                                    {.backend = "cpu", .dtype = "bf16", .threads = 2, .random_weights = true});
    const ModelBench bench(loaded, true);
    const DecodeCase one{.batch = 3, .context = 20, .steps = 1};
    const DecodeTimes times = bench.decode(one);
    EXPECT_GT(times.tokens_per_second(one), 0);
    EXPECT_GT(times.forward_seconds, 0);
    EXPECT_GT(bench.prefill(19, 1), 0);
    EXPECT_GT(bench.cache_traffic(one), 0);
    ++models;
  }
  EXPECT_GT(models, 30);
}

}  // namespace
}  // namespace medley
