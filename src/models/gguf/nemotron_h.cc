// nemotron_h and nemotron_h_moe: a layer is attention where it has key heads, a feed-forward part where it has a size
// for one, else Mamba2.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "nemotron_h");
  json["layer_norm_epsilon"] = json["rms_norm_eps"];
  for (const char* field : {"rms_norm_eps", "rope_parameters"}) json.erase(field);
  const GgufMamba2 sizes = read_mamba2(keys);
  json["mamba_num_heads"] = sizes.heads;
  json["mamba_head_dim"] = sizes.head_dim;
  json["ssm_state_size"] = sizes.states;
  json["n_groups"] = sizes.groups;
  json["conv_kernel"] = sizes.conv_width;
  json["mlp_hidden_act"] = "relu2";
  const std::vector<bool> attention = attention_layers(keys);
  const std::vector<int64_t> inner = keys.per_layer("feed_forward_length");
  nlohmann::json parts = nlohmann::json::array();
  for (int64_t layer = 0; layer < keys.layers(); ++layer) {
    if (attention[size_t(layer)]) {
      parts.push_back("full_attention");
    } else if (inner[size_t(layer)] > 0) {
      parts.push_back(keys.in_layer(layer, "ffn_gate_inp.weight") ? "moe" : "mlp");
      if (parts.back() == "mlp") json["mlp_bias"] = keys.in_layer(layer, "ffn_up.bias");
    } else {
      parts.push_back("linear_attention");
      json["use_conv_bias"] = keys.in_layer(layer, "ssm_conv1d.bias");
      json["use_bias"] = keys.in_layer(layer, "ssm_in.bias");
    }
  }
  json["layers_block_type"] = parts;
  if (keys.integer("expert_count", 0) == 0) return json;
  json["n_routed_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  json["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
  json["moe_shared_expert_intermediate_size"] = keys.integer("expert_shared_feed_forward_length");
  json["norm_topk_prob"] = keys.boolean("expert_weights_norm", true);
  json["routed_scaling_factor"] = keys.number("expert_weights_scale", 1);
  json["n_group"] = keys.integer("expert_group_count", 1);
  json["topk_group"] = keys.integer("expert_group_used_count", keys.integer("expert_group_count", 1));
  return json;
}

void tensors(GgufTensors& tensors) {
  const std::vector<GgufRule> rules{{"attn_norm", "norm"},
                                    {"attn_q", "mixer.q_proj"},
                                    {"attn_k", "mixer.k_proj"},
                                    {"attn_v", "mixer.v_proj"},
                                    {"attn_output", "mixer.o_proj"},
                                    {"ssm_dt.bias", "mixer.dt_bias"},
                                    {"ffn_up", "mixer.up_proj"},
                                    {"ffn_down", "mixer.down_proj"},
                                    {"ffn_gate_inp", "mixer.gate"},
                                    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias"},
                                    {"ffn_up_exps.weight", "mixer.experts.E.up_proj.weight", GgufChange::experts},
                                    {"ffn_down_exps.weight", "mixer.experts.E.down_proj.weight", GgufChange::experts},
                                    {"ffn_up_shexp", "mixer.shared_experts.up_proj"},
                                    {"ffn_down_shexp", "mixer.shared_experts.down_proj"}};
  add_tensors(
      tensors,
      {.embedding = "backbone.embeddings.weight", .final_norm = "backbone.norm_f.weight", .layers = "backbone.layers."},
      joined({rules, mamba_rules("mixer.")}));
}

}  // namespace

const GgufArchitecture gguf_nemotron_h{"nemotron_h", config, tensors};
const GgufArchitecture gguf_nemotron_h_moe{"nemotron_h_moe", config, tensors};

}  // namespace medley
