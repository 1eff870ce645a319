// What models with state-space layers share: the "backbone." stack of norm and mixer, the mixers' fields.
#pragma once

#include <functional>

#include "models/transformer_config.h"

namespace medley {

DecoderSpec read_backbone(ConfigReader& config, const std::string& model_type, bool tied_by_default);

// num_hidden_layers blocks of the mixer at its layer's prefix, without a feed-forward part.
template <class MixerSpecType>
void add_backbone_blocks(ConfigReader& config, DecoderSpec& spec, const MixerSpecType& mixer) {
  const int64_t layers = config.layers();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = fmt::format("backbone.layers.{}.", layer);
    spec.blocks.push_back({.mixer_norm = at + "norm.weight", .mixer = mixer.at(at + "mixer.")});
  }
}

// A rank that may be the word "auto": ceil(hidden / 16).
int64_t read_dt_rank(ConfigReader& config, const std::string& field, int64_t hidden);

// Mamba's fields: expand or intermediate_size, state_size, conv_kernel, time_step_rank, use_conv_bias, use_bias.
MambaSpec read_mamba(ConfigReader& config, int64_t hidden);

// The mamba_* fields of models that mix Mamba2 with attention; `inner` channels must be heads x head_dim.
Mamba2Spec read_mamba2_block(ConfigReader& config, int64_t hidden, int64_t inner, NormRule norm);

// time_step_limit: two ascending numbers, or none.
void read_time_step_limit(ConfigReader& config, Mamba2Spec& mixer);

// A layer's feed-forward part at the tensor prefix `at`, for stacks whose families differ in it.
using FeedForwardOfLayer = std::function<FeedForwardSpec(int64_t layer, const std::string& at)>;

// Per layer: is it full attention? Otherwise it is the family's other kind ("linear_attention", "mamba", "conv").
std::vector<bool> read_full_attention_layers(ConfigReader& config, const std::string& field, int64_t layers);

}  // namespace medley
