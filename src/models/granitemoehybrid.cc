// Granite 4 (IBM 2025): Mamba2 layers with a few of attention, Granite's multipliers; experts beside a shared MLP, or
// the MLP alone.
#include "models/families.h"
#include "models/granite.h"
#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_granitemoehybrid(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "granitemoehybrid");
  read_granite_stack(config, spec);
  const TransformerConfig t = read_transformer(config);
  const bool rotates = config.text("position_embedding_type", "nope") == "rope";
  if (!rotates) config.require("position_embedding_type", "nope");
  const RopeSpec rope = read_rope(config, t.head_dim);
  if (rotates) spec.ropes = {rope};
  const bool bias = config.boolean("attention_bias", false);
  const float scale = read_granite_attention_scale(config);
  const Mamba2Spec mamba = read_mamba2_block(config, t.hidden, config.integer("mamba_expand", 2) * t.hidden, spec.norm);
  const MlpSpec mlp = read_granite_shared_mlp(config, t.hidden);
  const MoeSpec moe = read_granite_moe(config, t.hidden);
  const std::vector<bool> attention_layers = read_full_attention_layers(config, "layer_types", t.layers);
  config.require("normalization_function", "rmsnorm");
  config.ignore({"init_method"});
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer), shared_at = at + "shared_mlp.";
    MixerSpec mixer = mamba.at(at + "mamba.");
    if (attention_layers[size_t(layer)]) {
      GqaSpec attention = usual_attention(t, at + "self_attn.");
      attention.qkv_bias = attention.o_bias = bias;
      attention.scale = scale;
      attention.rope = rotates ? 0 : -1;
      mixer = attention;
    }
    FeedForwardSpec feed_forward = mlp.at(shared_at);
    if (moe.rule.experts > 0) {
      MoeSpec experts = moe.at(at + "block_sparse_moe.");
      experts.shared = mlp.at(shared_at);
      feed_forward = std::move(experts);
    }
    spec.blocks.push_back(usual_block(layer, std::move(mixer), std::move(feed_forward)));
  }
  apply_granite_residual(config, spec);
  return make_decoder(std::move(spec));
}

}  // namespace medley
