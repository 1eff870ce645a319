// Qwen3-MoE: Qwen3's attention, a mixture of experts every decoder_sparse_step layers.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_qwen3_moe(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "qwen3_moe");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool bias = config.boolean("attention_bias", false);
  const int32_t window = config.boolean("use_sliding_window", false) ? read_window(config, "sliding_window", 4096) : 0;
  config.ignore({"sliding_window", "max_window_layers"});  // without use_sliding_window they say nothing
  const int64_t experts = config.integer("num_local_experts", config.integer("num_experts", 128));
  const std::vector<bool> sparse = read_sparse_layers(config, t.layers, experts);
  const Activation activation = read_activation(config);
  const MlpSpec mlp{.hidden = t.hidden, .intermediate = config.integer("intermediate_size"), .activation = activation};
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = config.integer("moe_intermediate_size"),
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(experts),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 8)),
                             .renormalize = config.boolean("norm_topk_prob", false)},
                    .activation = activation};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.qk_norm = spec.norm;
    attention.window = window;
    const std::string inner = at + "mlp.";
    spec.blocks.push_back(
        usual_block(layer, attention, sparse[size_t(layer)] ? FeedForwardSpec(moe.at(inner)) : mlp.at(inner)));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
