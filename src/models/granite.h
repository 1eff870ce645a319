// What the Granite families share: four multipliers, and experts and MLPs with gate and up in one tensor.
#pragma once

#include "models/transformer_config.h"

namespace medley {

// embedding_multiplier and logits_scaling into the stack.
void read_granite_stack(ConfigReader& config, DecoderSpec& spec);
// attention_multiplier: the scale of the scores, in place of head_dim^-1/2.
float read_granite_attention_scale(ConfigReader& config);
// residual_multiplier, of every block's two parts. After the blocks are there.
void apply_granite_residual(ConfigReader& config, DecoderSpec& spec);

// num_local_experts of intermediate_size, num_experts_per_tok chosen by their logits; at "block_sparse_moe.".
MoeSpec read_granite_moe(ConfigReader& config, int64_t hidden);
// An MLP of shared_intermediate_size, at "shared_mlp.".
MlpSpec read_granite_shared_mlp(ConfigReader& config, int64_t hidden);

// A stack of attention and experts, with a shared MLP beside them when shared_intermediate_size says so.
DecoderSpec read_granite_moe_stack(ConfigReader& config, const std::string& model_type, bool shared);

}  // namespace medley
