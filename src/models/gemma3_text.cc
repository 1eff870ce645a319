// Gemma 3's language model (Gemma Team 2025): five layers with a window to one without, each kind with a rope of its
// own; norms before and after every part, their weights zero-centred.
#include <cmath>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {
namespace {

// Rope 0 is that of the layers without a window, rope 1 that of those with one. Since transformers 5 rope_parameters
// has an object for each; before, rope_theta and rope_scaling were the first one's and rope_local_base_freq the
// other's.
std::vector<RopeSpec> read_ropes(ConfigReader& config, int64_t head_dim) {
  const double global = config.number("rope_theta", 1e6), local = config.number("rope_local_base_freq", 1e4);
  auto parameters = config.object("rope_parameters");
  if (!parameters)
    return {read_rope(config, config.object("rope_scaling"), head_dim, global),
            read_rope(config, std::nullopt, head_dim, local)};
  if (config.has("rope_scaling")) config.refuse("rope_scaling", "rope_parameters is there as well; keep one of them");
  config.ignore({"rope_scaling"});
  std::vector<RopeSpec> ropes{read_rope(config, parameters->object("full_attention"), head_dim, global),
                              read_rope(config, parameters->object("sliding_attention"), head_dim, local)};
  parameters->finish();
  return ropes;
}

}  // namespace

std::unique_ptr<Model> make_gemma3_text(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "gemma3_text");
  spec.tied = config.boolean("tie_word_embeddings", true);
  spec.embedding_scale = float(std::sqrt(double(spec.info.hidden_size)));
  spec.norm = {.eps = float(config.number("rms_norm_eps", 1e-6)), .weight_offset = 1};
  spec.logits_softcap = float(config.number("final_logit_softcapping", 0));
  TransformerConfig t = read_transformer(config);
  if (!config.has("head_dim")) t.head_dim = 256;  // the family's default, not hidden_size / heads
  spec.ropes = read_ropes(config, t.head_dim);
  const bool bias = config.boolean("attention_bias", false);
  const float scale = float(1 / std::sqrt(config.number("query_pre_attn_scalar", 256)));
  const int64_t period = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", 6));
  if (period <= 0) config.refuse("sliding_window_pattern", "it must be above 0");
  const int32_t window = read_window(config, "sliding_window", 4096);
  const std::vector<bool> sliding =
      read_sliding_layers(config, t.layers, [&](int64_t layer) { return (layer + 1) % period != 0; });
  if (config.optional_number("attn_logit_softcapping"))
    config.refuse("attn_logit_softcapping", "Gemma 3 does not cap its scores (transformers reads the field nowhere)");
  config.require("use_bidirectional_attention", false);
  config.ignore({"cache_implementation"});
  const MlpSpec mlp{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = config.has("hidden_activation") ? read_activation(config, "hidden_activation")
                                                                  : Activation::gelu_tanh};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.qk_norm = spec.norm;
    attention.scale = scale;
    if (sliding[size_t(layer)]) {
      attention.rope = 1;
      attention.window = window;
    }
    spec.blocks.push_back({.mixer_norm = at + "input_layernorm.weight",
                           .mixer = attention,
                           .feed_forward_norm = at + "pre_feedforward_layernorm.weight",
                           .feed_forward = mlp.at(at + "mlp."),
                           .mixer_post_norm = at + "post_attention_layernorm.weight",
                           .feed_forward_post_norm = at + "post_feedforward_layernorm.weight"});
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
