// Mistral 7B (Jiang et al. 2023): Llama with a sliding window over every layer.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {

std::unique_ptr<Model> make_mistral(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "mistral");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.ropes = {read_rope(config, t.head_dim)};
  const int32_t window = read_window(config, "sliding_window", 4096);
  const MlpSpec mlp{
      .hidden = t.hidden, .intermediate = config.integer("intermediate_size"), .activation = read_activation(config)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.window = window;
    spec.blocks.push_back(usual_block(layer, attention, mlp.at(at + "mlp.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
