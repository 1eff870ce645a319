// What DeepSeek-V2 and V3 share: multi-head latent attention, dense first layers, experts beside shared ones.
#pragma once

#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

// Stack, rope, attention and layers; the family gives the routing rule and the correction bias's tensor name.
struct DeepseekRouting {
  RoutingRule rule;
  std::string correction_bias;
};
DecoderSpec read_deepseek(ConfigReader& config, const std::string& model_type, bool rope_interleaved,
                          const DeepseekRouting& routing);

}  // namespace medley
