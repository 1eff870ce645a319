// Granite 3 (IBM 2024), dense: Llama's blocks with multipliers on embedding, scores, residual and logits.
#include "models/families.h"
#include "models/granite.h"
#include "models/rope_config.h"

namespace medley {

std::unique_ptr<Model> make_granite(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "granite");
  read_granite_stack(config, spec);
  const TransformerConfig t = read_transformer(config);
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool bias = config.boolean("attention_bias", false);
  const float scale = read_granite_attention_scale(config);
  const MlpSpec mlp{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config),
                    .bias = config.boolean("mlp_bias", false)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.scale = scale;
    spec.blocks.push_back(usual_block(layer, attention, mlp.at(at + "mlp.")));
  }
  apply_granite_residual(config, spec);
  return make_decoder(std::move(spec));
}

}  // namespace medley
