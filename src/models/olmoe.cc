// OLMoE (Muennighoff et al. 2024): norms over all of q and all of k, a mixture of experts in every layer.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_olmoe(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "olmoe");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool bias = config.boolean("attention_bias", false);
  if (config.optional_number("clip_qkv")) config.refuse("clip_qkv", "no published model clips; medley supports null");
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(config.integer("num_experts", 64)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 8)),
                             .renormalize = config.boolean("norm_topk_prob", false)},
                    .activation = read_activation(config)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.qk_norm = spec.norm;
    attention.qk_norm_whole = true;
    spec.blocks.push_back(usual_block(layer, attention, moe.at(at + "mlp.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
