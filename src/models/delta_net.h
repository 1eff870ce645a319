// What Qwen3-Next and Qwen3.5 share: gated delta nets with a gated attention layer every fourth, zero-centred norms;
// the feed-forward part is the family's.
#pragma once

#include "models/state_space_config.h"

namespace medley {

DecoderSpec read_delta_net_stack(ConfigReader& config, const std::string& model_type);
void add_delta_net_blocks(ConfigReader& config, DecoderSpec& spec, DeltaNetLayout layout,
                          const FeedForwardOfLayer& feed_forward);

}  // namespace medley
