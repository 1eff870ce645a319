// What LFM2 and LFM2-MoE share: short convolutions and attention layers with norms of q and k; the feed-forward part is
// the family's.
#pragma once

#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {

DecoderSpec read_lfm2_stack(ConfigReader& config, const std::string& model_type);
void add_lfm2_blocks(ConfigReader& config, DecoderSpec& spec, const FeedForwardOfLayer& feed_forward);

// w2(silu(w1 x) * w3 x).
MlpSpec lfm2_mlp(int64_t hidden, int64_t intermediate);

}  // namespace medley
