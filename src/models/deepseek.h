// What DeepSeek-V2, V3 and V3.2 share, and GLM-4.5 takes of it: dense first layers, experts beside shared ones,
// modules for multi-token prediction; multi-head latent attention.
#pragma once

#include <functional>

#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

struct DeepseekRouting {
  RoutingRule rule;
  std::string correction_bias;  // tensor name; empty: none
};

// DeepSeek-V3's rule: sigmoid scores, a correction bias for the choice, groups by the sum of their two best. What the
// fields default to is the family's.
DeepseekRouting read_v3_routing(ConfigReader& config, const RoutingRule& defaults);

// Which layers have experts: mlp_layer_types, else all from first_k_dense_replace on.
std::vector<bool> read_sparse_from(ConfigReader& config, int64_t layers, int64_t default_first);

// Blocks and multi-token-prediction modules. `attention` makes a layer's mixer from its prefix
// "model.layers.N.self_attn."
void add_deepseek_layers(ConfigReader& config, DecoderSpec& spec, const DeepseekRouting& routing,
                         const std::function<MixerSpec(const std::string& prefix)>& attention);

// Latent attention's sizes; its ropes are the family's.
MlaSpec read_mla(ConfigReader& config, const DecoderSpec& spec);

// A whole model with latent attention.
DecoderSpec read_deepseek(ConfigReader& config, const std::string& model_type, bool rope_interleaved,
                          const DeepseekRouting& routing);

}  // namespace medley
