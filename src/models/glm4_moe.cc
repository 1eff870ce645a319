// GLM-4.5 and 4.6 (GLM-4.5 Team 2025): grouped-query attention with rope on half of each head, DeepSeek-V3's experts.
#include "models/deepseek.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_glm4_moe(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "glm4_moe");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_rope(config, t.head_dim, 10000, 0.5)};
  const bool bias = config.boolean("attention_bias", false), qk_norm = config.boolean("use_qk_norm", false);
  const DeepseekRouting routing =
      read_v3_routing(config, {.experts = 128, .top_k = 8, .groups = 1, .top_groups = 1, .scaling = 1});
  add_deepseek_layers(config, spec, routing, [&](const std::string& prefix) {
    GqaSpec attention = usual_attention(t, prefix);
    attention.qkv_bias = bias;
    if (qk_norm) attention.qk_norm = spec.norm;
    return attention;
  });
  return make_decoder(std::move(spec));
}

}  // namespace medley
