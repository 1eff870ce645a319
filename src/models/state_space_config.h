// What Mamba and Mamba2 checkpoints share: the "backbone." stack of norm and mixer.
#pragma once

#include "models/transformer_config.h"

namespace medley {

DecoderSpec read_backbone(ConfigReader& config, const std::string& model_type, bool tied_by_default);

// num_hidden_layers blocks of the mixer at its layer's prefix, without a feed-forward part.
template <class MixerSpecType>
void add_backbone_blocks(ConfigReader& config, DecoderSpec& spec, MixerSpecType mixer) {
  const int64_t layers = config.integer("num_hidden_layers");
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("backbone.layers.{}.", layer);
    mixer.prefix = at + "mixer.";
    spec.blocks.push_back({at + "norm.weight", mixer, "", {}});
  }
}

// A rank that may be the word "auto": ceil(hidden / 16).
int64_t read_dt_rank(ConfigReader& config, const std::string& field, int64_t hidden);

}  // namespace medley
