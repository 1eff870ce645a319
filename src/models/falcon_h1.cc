// Falcon-H1 (Zuo et al. 2025): in every layer attention and Mamba2 side by side, and factors of maximal-update
// parametrisation on nearly every projection.
#include "models/families.h"
#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

float read_factor(ConfigReader& config, const std::string& field) {
  return float(config.number(field, 1));
}

std::vector<double> read_factors(ConfigReader& config, const std::string& field, size_t count) {
  std::vector<double> factors = config.numbers(field);
  if (factors.empty()) factors.assign(count, 1);
  if (factors.size() != count) config.refuse(field, fmt::format("{} numbers are wanted", count));
  return factors;
}

Mamba2Spec read_mixer(ConfigReader& config, int64_t hidden, NormRule norm) {
  const bool by_expand = config.has_key("mamba_d_ssm") && !config.has("mamba_d_ssm");  // null
  const int64_t expanded = config.integer("mamba_expand", 2) * hidden;
  const int64_t inner = by_expand ? expanded : config.integer("mamba_d_ssm", 1024);
  Mamba2Spec mamba = read_mamba2_block(config, hidden, inner, norm);
  mamba.out_bias = config.boolean("projectors_bias", false);
  mamba.norm_by_group = true;
  const bool norm_first = config.boolean("mamba_norm_before_gate", true);
  mamba.norm = norm_first ? Mamba2Norm::norm_first : Mamba2Norm::gate_first;
  if (!config.boolean("mamba_rms_norm", false)) mamba.norm = Mamba2Norm::none;
  const std::vector<double> by = read_factors(config, "ssm_multipliers", 5);
  const float in = read_factor(config, "ssm_in_multiplier");
  if (mamba.proj_bias && in != 1) config.refuse("ssm_in_multiplier", "medley supports 1 only with mamba_proj_bias");
  mamba.multipliers = {.z = in * float(by[0]),
                       .x = in * float(by[1]),
                       .b = in * float(by[2]),
                       .c = in * float(by[3]),
                       .dt = in * float(by[4]),
                       .out = read_factor(config, "ssm_out_multiplier")};
  return mamba;
}

GqaSpec read_attention(ConfigReader& config, const TransformerConfig& t) {
  GqaSpec attention = usual_attention(t, "");
  attention.qkv_bias = attention.o_bias = config.boolean("attention_bias", false);
  const float in = read_factor(config, "attention_in_multiplier");
  if (attention.qkv_bias && in != 1)
    config.refuse("attention_in_multiplier", "medley supports 1 only with attention_bias");
  attention.q_scale = attention.v_scale = in;
  attention.k_scale = in * read_factor(config, "key_multiplier");
  attention.o_scale = read_factor(config, "attention_out_multiplier");
  return attention;
}

}  // namespace

std::unique_ptr<Model> make_falcon_h1(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "falcon_h1");
  spec.final_norm = "model.final_layernorm.weight";
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  spec.ropes = {read_rope(config, t.head_dim)};
  spec.embedding_scale = read_factor(config, "embedding_multiplier");
  spec.logits_scale = read_factor(config, "lm_head_multiplier");
  ParallelSpec mixer{.attention = read_attention(config, t), .mamba = read_mixer(config, t.hidden, spec.norm)};
  const std::vector<double> mlp_factors = read_factors(config, "mlp_multipliers", 2);
  MlpSpec mlp{.hidden = t.hidden,
              .intermediate = config.integer("intermediate_size"),
              .activation = read_activation(config),
              .bias = config.boolean("mlp_bias", false)};
  mlp.gate_scale = float(mlp_factors[0]);
  mlp.down_scale = float(mlp_factors[1]);
  config.require("hidden_act", "silu");  // of the convolution too
  config.require("mamba_use_mlp", true);
  config.ignore({"num_logits_to_keep", "attn_layer_indices", "mlp_expansion_factor"});
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    mixer.attention.prefix = at + "self_attn.";
    mixer.mamba.prefix = at + "mamba.";
    spec.blocks.push_back({.mixer_norm = at + "input_layernorm.weight",
                           .mixer = mixer,
                           .feed_forward_norm = at + "pre_ff_layernorm.weight",
                           .feed_forward = mlp.at(at + "feed_forward.")});
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
