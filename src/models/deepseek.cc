#include "models/deepseek.h"

#include <cmath>

namespace medley {

MlaSpec read_mla(ConfigReader& config, const DecoderSpec& spec) {
  MlaSpec mla;
  mla.hidden = spec.info.hidden_size;
  mla.heads = config.integer("num_attention_heads");
  mla.q_lora_rank = config.optional_integer("q_lora_rank");
  mla.kv_lora_rank = config.integer("kv_lora_rank", 512);
  mla.qk_nope_head_dim = config.integer("qk_nope_head_dim", 128);
  mla.qk_rope_head_dim = config.integer("qk_rope_head_dim", 64);
  mla.v_head_dim = config.integer("v_head_dim", 128);
  mla.attention_bias = config.boolean("attention_bias", false);
  const double head_dim = double(mla.qk_nope_head_dim + mla.qk_rope_head_dim);
  mla.scale = float(yarn_softmax_factor(config) / std::sqrt(head_dim));
  if (config.integer("num_key_value_heads", mla.heads) != mla.heads)
    config.refuse("num_key_value_heads", "latent attention has one key head per query head");
  config.ignore({"head_dim", "qk_head_dim"});  // follow from the above; transformers overwrites them too
  return mla;
}

DeepseekRouting read_v3_routing(ConfigReader& config, const RoutingRule& defaults) {
  RoutingRule rule = defaults;
  rule.score = RouterScore::sigmoid;
  rule.group_score = GroupScore::top2_sum;
  rule.experts = int32_t(config.integer("n_routed_experts", config.integer("num_local_experts", defaults.experts)));
  rule.top_k = int32_t(config.integer("num_experts_per_tok", defaults.top_k));
  rule.groups = int32_t(config.integer("n_group", defaults.groups));
  rule.top_groups = int32_t(config.integer("topk_group", defaults.top_groups));
  rule.renormalize = config.boolean("norm_topk_prob", true);
  rule.scaling = float(config.number("routed_scaling_factor", defaults.scaling));
  config.require("topk_method", "noaux_tc");
  config.require("scoring_func", "sigmoid");
  return {rule, "gate.e_score_correction_bias"};
}

std::vector<bool> read_sparse_from(ConfigReader& config, int64_t layers, int64_t default_first) {
  const int64_t first = config.integer_or_zero("first_k_dense_replace", default_first);
  const std::vector<std::string> types = config.texts("mlp_layer_types");
  if (!types.empty() && int64_t(types.size()) != layers)
    config.refuse("mlp_layer_types", fmt::format("one entry per layer ({}) is wanted", layers));
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < layers; ++layer) {
    sparse.push_back(types.empty() ? layer >= first : types[size_t(layer)] == "sparse");
    if (!types.empty() && !sparse.back() && types[size_t(layer)] != "dense")
      config.refuse("mlp_layer_types", "medley supports dense and sparse");
  }
  return sparse;
}

void add_deepseek_layers(ConfigReader& config, DecoderSpec& spec, const DeepseekRouting& routing,
                         const std::function<MixerSpec(const std::string& prefix)>& attention) {
  const int64_t hidden = spec.info.hidden_size, layers = config.layers();
  const Activation activation = read_activation(config);
  const MlpSpec mlp{.hidden = hidden, .intermediate = config.integer("intermediate_size"), .activation = activation};
  const int64_t inner = config.integer("moe_intermediate_size"), shared = config.integer("n_shared_experts", 0);
  const std::vector<bool> sparse = read_sparse_from(config, layers, 0);
  config.require("moe_layer_freq", int64_t(1));
  config.ignore({"ep_size"});  // how its trainer spread the experts
  const auto block = [&](int64_t layer) {
    const std::string at = layer_prefix(layer);
    const MixerSpec mixer = attention(at + "self_attn.");
    // A module for multi-token prediction stands behind the last layer and is like the sparse ones.
    if (layer < layers && !sparse[size_t(layer)]) return usual_block(layer, mixer, mlp.at(at + "mlp."));
    MoeSpec moe{.prefix = at + "mlp.",
                .hidden = hidden,
                .intermediate = inner,
                .rule = routing.rule,
                .activation = activation,
                .correction_bias = routing.correction_bias};
    if (shared > 0)
      moe.shared = MlpSpec{.prefix = at + "mlp.shared_experts.",
                           .hidden = hidden,
                           .intermediate = inner * shared,
                           .activation = activation};
    return usual_block(layer, mixer, std::move(moe));
  };
  for (int64_t layer = 0; layer < layers; ++layer) {
    spec.blocks.push_back(block(layer));
    spec.derived.push_back(layer_prefix(layer) + "self_attn.rotary_emb.inv_freq");
  }
  spec.info.mtp_layers = int(config.integer("num_nextn_predict_layers", config.integer("num_mtp_layers", 0)));
  if (spec.info.mtp_layers > layers) config.refuse("num_nextn_predict_layers", "more modules than layers");
  for (int64_t layer = layers; layer < layers + spec.info.mtp_layers; ++layer)
    spec.mtp.push_back({layer_prefix(layer), block(layer)});
}

DecoderSpec read_deepseek(ConfigReader& config, const std::string& model_type, bool rope_interleaved,
                          const DeepseekRouting& routing) {
  DecoderSpec spec = read_stack(config, model_type);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  const MlaSpec mla = read_mla(config, spec);
  spec.ropes = {read_rope(config, mla.qk_rope_head_dim)};
  spec.ropes[0].interleaved = rope_interleaved;
  add_deepseek_layers(config, spec, routing, [&](const std::string& prefix) {
    MlaSpec attention = mla;
    attention.prefix = prefix;
    return attention;
  });
  return spec;
}

}  // namespace medley
