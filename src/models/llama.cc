// Llama 1-3 (Touvron et al. 2023; the Llama 3.1 rope scaling).
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_llama(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "llama");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool attention_bias = config.boolean("attention_bias", false);
  const MlpSpec mlp{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config),
                    .bias = config.boolean("mlp_bias", false)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = attention_bias;
    spec.blocks.push_back(usual_block(layer, attention, mlp.at(at + "mlp.")));
    spec.derived.push_back(at + "self_attn.rotary_emb.inv_freq");
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
