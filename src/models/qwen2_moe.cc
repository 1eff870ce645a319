// Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024): experts beside a shared one behind a sigmoid gate.
#include <algorithm>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_qwen2_moe(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "qwen2_moe");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool bias = config.boolean("qkv_bias", true);
  // Unlike Qwen2: every second layer below max_window_layers.
  const std::vector<int32_t> windows = read_layer_windows(
      config, t.layers, [](int64_t layer, int64_t bound) { return layer % 2 == 0 && layer < bound; });
  const Activation activation = read_activation(config);
  const MlpSpec mlp{.hidden = t.hidden, .intermediate = config.integer("intermediate_size"), .activation = activation};
  MlpSpec shared = mlp;
  shared.intermediate = config.integer("shared_expert_intermediate_size", 5632);
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = config.integer("moe_intermediate_size"),
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(config.integer("num_experts", 60)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 4)),
                             .renormalize = config.boolean("norm_topk_prob", false)},
                    .activation = activation,
                    .shared_gate = "shared_expert_gate.weight"};
  const std::vector<bool> sparse = read_sparse_layers(config, t.layers, moe.rule.experts);
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer), inner = at + "mlp.";
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = bias;
    attention.window = windows[size_t(layer)];
    MoeSpec experts = moe.at(inner);
    experts.shared = shared.at(inner + "shared_expert.");
    spec.blocks.push_back(
        usual_block(layer, attention, sparse[size_t(layer)] ? FeedForwardSpec(experts) : mlp.at(inner)));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
