// Mixtral (Jiang et al. 2024): every layer's feed-forward part is a mixture of experts.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_mixtral(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "mixtral");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_rope(config, t.head_dim, 1e6)};
  const int32_t window = read_window(config, "sliding_window", 0);
  const MoeSpec moe = read_mixtral_experts(config, t.hidden, read_activation(config));
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.window = window;
    spec.blocks.push_back(usual_block(layer, attention, moe.at(at + "block_sparse_moe.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
