// Qwen2 and Qwen2.5 (Yang et al. 2024): biases on q, k and v; optionally a sliding window on the upper layers.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_qwen2(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "qwen2");
  config.require("use_mrope", false);
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.ropes = {read_rope(config, t.head_dim)};
  const std::vector<int32_t> windows = read_layer_windows(config, t.layers);
  const MlpSpec mlp{
      .hidden = t.hidden, .intermediate = config.integer("intermediate_size"), .activation = read_activation(config)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = true;
    attention.window = windows[size_t(layer)];
    spec.blocks.push_back(usual_block(layer, attention, mlp.at(at + "mlp.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
