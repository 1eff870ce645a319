// Bamba (IBM, Princeton, UIUC 2024): Mamba2 layers with an attention layer here and there, half of whose heads'
// dimensions are rotated.
#include <algorithm>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_bamba(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "bamba");
  spec.final_norm = "model.final_layernorm.weight";
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_rope(config, t.head_dim, 10000, 0.5)};
  config.require("attn_rotary_emb", spec.ropes[0].dim);
  const bool bias = config.boolean("attention_bias", false);
  const Mamba2Spec mamba = read_mamba2_block(config, t.hidden, config.integer("mamba_expand", 2) * t.hidden, spec.norm);
  const MlpSpec mlp{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config),
                    .bias = config.boolean("mlp_bias", false)};
  const std::vector<int64_t> attention_layers = config.integers("attn_layer_indices");
  config.ignore({"num_logits_to_keep", "z_loss_coefficient"});
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    BlockSpec block{.mixer_norm = at + "input_layernorm.weight",
                    .mixer = mamba.at(at + "mamba."),
                    .feed_forward_norm = at + "pre_ff_layernorm.weight",
                    .feed_forward = mlp.at(at + "feed_forward.")};
    if (std::find(attention_layers.begin(), attention_layers.end(), layer) != attention_layers.end()) {
      GqaSpec attention = usual_attention(t, at + "self_attn.");
      attention.qkv_bias = attention.o_bias = bias;
      block.mixer = attention;
    }
    spec.blocks.push_back(std::move(block));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
