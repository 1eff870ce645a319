// DeepSeek-V3 and R1 (DeepSeek-AI 2024): sigmoid scores, a correction bias for the choice, groups by the sum of their
// two best, multi-token prediction.
#include "models/deepseek.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_deepseek_v3(ConfigReader& config) {
  const DeepseekRouting routing =
      read_v3_routing(config, {.experts = 256, .top_k = 8, .groups = 8, .top_groups = 4, .scaling = 2.5f});
  return make_decoder(read_deepseek(config, "deepseek_v3", config.boolean("rope_interleave", true), routing));
}

}  // namespace medley
