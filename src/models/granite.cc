#include "models/granite.h"

#include "models/rope_config.h"

namespace medley {

void read_granite_stack(ConfigReader& config, DecoderSpec& spec) {
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  spec.embedding_scale = float(config.number("embedding_multiplier", 1));
  const double scaling = config.number("logits_scaling", 1);
  if (scaling == 0) config.refuse("logits_scaling", "the logits are divided by it");
  spec.logits_scale = float(1 / scaling);
}

float read_granite_attention_scale(ConfigReader& config) {
  const double scale = config.number("attention_multiplier", 1);
  if (scale == 0) config.refuse("attention_multiplier", "it must not be 0");
  return float(scale);
}

void apply_granite_residual(ConfigReader& config, DecoderSpec& spec) {
  const auto multiplier = float(config.number("residual_multiplier", 1));
  for (BlockSpec& block : spec.blocks) block.mixer_residual.add = block.feed_forward_residual.add = multiplier;
}

MoeSpec read_granite_moe(ConfigReader& config, int64_t hidden) {
  return {.hidden = hidden,
          .intermediate = config.integer("intermediate_size"),
          .rule = {.score = RouterScore::softmax_of_chosen,
                   .experts = int32_t(config.integer_or_zero("num_local_experts", 8)),
                   .top_k = int32_t(config.integer_or_zero("num_experts_per_tok", 2))},
          .activation = read_activation(config),
          .router = "router.layer.weight",
          .storage = ExpertStorage::stacked,
          .down = "output_linear.weight",
          .gate_up = "input_linear.weight"};
}

MlpSpec read_granite_shared_mlp(ConfigReader& config, int64_t hidden) {
  return {.hidden = hidden,
          .intermediate = config.integer("shared_intermediate_size", 0),
          .activation = read_activation(config),
          .down = "output_linear",
          .gate_over_up = "input_linear"};
}

DecoderSpec read_granite_moe_stack(ConfigReader& config, const std::string& model_type, bool shared) {
  DecoderSpec spec = read_stack(config, model_type);
  read_granite_stack(config, spec);
  const TransformerConfig t = read_transformer(config);
  spec.ropes = {read_rope(config, t.head_dim)};
  const bool bias = config.boolean("attention_bias", false);
  const float scale = read_granite_attention_scale(config);
  const MoeSpec moe = read_granite_moe(config, t.hidden);
  const MlpSpec mlp = shared ? read_granite_shared_mlp(config, t.hidden) : MlpSpec{};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.scale = scale;
    MoeSpec experts = moe.at(at + "block_sparse_moe.");
    if (mlp.intermediate > 0) experts.shared = mlp.at(at + "shared_mlp.");
    spec.blocks.push_back(usual_block(layer, attention, std::move(experts)));
  }
  apply_granite_residual(config, spec);
  return spec;
}

}  // namespace medley
