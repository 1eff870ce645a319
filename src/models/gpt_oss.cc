// gpt-oss (OpenAI 2025): attention with sinks, a window on every second layer, biased experts with a clamped gate.
#include <cmath>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/transformer_config.h"

namespace medley {
namespace {

// Without any rope fields: YaRN as published.
RopeSpec read_gpt_oss_rope(ConfigReader& config, int64_t head_dim) {
  if (config.has("rope_parameters") || config.has("rope_scaling")) return read_rope(config, head_dim, 150000);
  return {.dim = head_dim,
          .theta = config.number("rope_theta", 150000),
          .scaling = RopeScaling::yarn,
          .factor = 32,
          .original_max_positions = 4096,
          .truncate = false,
          .attention_factor = 0.1 * std::log(32.0) + 1};
}

}  // namespace

std::unique_ptr<Model> make_gpt_oss(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "gpt_oss");
  TransformerConfig t = read_transformer(config);
  if (!config.has("head_dim")) t.head_dim = 64;  // the family's default, not hidden_size / heads
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_gpt_oss_rope(config, t.head_dim)};
  const bool bias = config.boolean("attention_bias", true);
  const int32_t window = read_window(config, "sliding_window", 128);
  const std::vector<bool> sliding = read_sliding_layers(config, t.layers, [](int64_t layer) { return layer % 2 == 0; });
  config.require("hidden_act", "silu");        // the gate below is built on it
  config.require("swiglu_limit", int64_t(7));  // clamped_swiglu's
  const int64_t top_k = config.integer("num_experts_per_tok", config.integer("experts_per_token", 4));
  if (config.integer("experts_per_token", top_k) != top_k)
    config.refuse("experts_per_token", fmt::format("num_experts_per_tok is {}", top_k));
  config.ignore({"initial_context_length"});  // rope_scaling's original_max_position_embeddings counts
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .rule = {.score = RouterScore::softmax_of_chosen,
                             .experts = int32_t(config.integer("num_local_experts", 128)),
                             .top_k = int32_t(top_k)},
                    .activation = Activation::clamped_swiglu,
                    .router = "router.weight",
                    .router_bias = "router.bias",
                    .storage = ExpertStorage::interleaved,
                    .down = "experts.down_proj",
                    .bias = true};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.window = sliding[size_t(layer)] ? window : 0;
    attention.sinks = true;
    spec.blocks.push_back(usual_block(layer, attention, moe.at(at + "mlp.")));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
