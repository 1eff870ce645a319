// Mixtral (Jiang et al. 2024): every layer's feed-forward part is a mixture of experts, softmax over all, the best
// num_experts_per_tok renormalised.
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
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(config.integer("num_local_experts", 8)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 2)),
                             .renormalize = true},
                    .activation = read_activation(config),
                    .gate = "w1",
                    .up = "w3",
                    .down = "w2"};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.window = window;
    spec.blocks.push_back(usual_block(layer, attention, moe.at(at + "block_sparse_moe.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
