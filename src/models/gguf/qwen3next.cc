// qwen3next: q, k and v of the delta net are one matrix and z another, b and a stand by key head in one; norms are
// stored as what they multiply with.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

std::vector<bool> full_attention_layers(const GgufKeys& keys) {
  std::vector<bool> attention;
  const int64_t interval = keys.integer("full_attention_interval", 4);
  for (int64_t layer = 0; layer < keys.layers(); ++layer)
    attention.push_back(interval > 0 && (layer + 1) % interval == 0);
  if (!keys.has("attention.recurrent_layers")) return attention;
  const std::vector<int64_t> recurrent = keys.per_layer("attention.recurrent_layers");
  for (size_t layer = 0; layer < attention.size(); ++layer) attention[layer] = recurrent[layer] == 0;
  return attention;
}

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "qwen3_next");
  const int64_t heads = keys.integer("ssm.time_step_rank");
  json["layer_types"] = layer_types(full_attention_layers(keys), "full_attention", "linear_attention");
  json["linear_conv_kernel_dim"] = keys.integer("ssm.conv_kernel");
  json["linear_key_head_dim"] = keys.integer("ssm.state_size");
  json["linear_num_key_heads"] = keys.integer("ssm.group_count");
  json["linear_num_value_heads"] = heads;
  json["linear_value_head_dim"] = keys.integer("ssm.inner_size") / heads;
  json["num_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  json["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
  json["shared_expert_intermediate_size"] = keys.integer("expert_shared_feed_forward_length");
  json["norm_topk_prob"] = true;
  return json;
}

// Of each key head the b rows of its value heads, then their a rows: all b rows, all a rows.
void part_ba(GgufTensors& tensors, int64_t layer) {
  const GgufKeys& keys = tensors.keys();
  const std::string from = fmt::format("blk.{}.ssm_ba.weight", layer);
  const std::string to = fmt::format("model.layers.{}.linear_attn.", layer);
  if (keys.in_layer(layer, "ssm_in.weight")) {  // older files: both as Hugging Face has them
    tensors.add(from, to + "in_proj_ba.weight");
    return;
  }
  const int64_t heads = keys.integer("ssm.time_step_rank"), share = heads / keys.integer("ssm.group_count");
  std::vector<GgufTensors::Row> b, a;
  for (int64_t head = 0; head < heads; ++head) {
    b.push_back({0, head / share * 2 * share + head % share});
    a.push_back({0, head / share * 2 * share + share + head % share});
  }
  tensors.gather({from}, to + "in_proj_b.weight", b);
  tensors.gather({from}, to + "in_proj_a.weight", a);
}

void tensors(GgufTensors& tensors) {
  constexpr GgufChange minus_one = GgufChange::minus_one;
  for (int64_t layer = 0; layer < tensors.keys().layers(); ++layer) part_ba(tensors, layer);
  const std::vector<GgufRule> rules{{"attn_norm", "input_layernorm", minus_one},
                                    {"post_attention_norm", "post_attention_layernorm", minus_one},
                                    {"attn_q", "self_attn.q_proj"},
                                    {"attn_k", "self_attn.k_proj"},
                                    {"attn_v", "self_attn.v_proj"},
                                    {"attn_output", "self_attn.o_proj"},
                                    {"attn_q_norm", "self_attn.q_norm", minus_one},
                                    {"attn_k_norm", "self_attn.k_norm", minus_one},
                                    {"attn_qkv", "linear_attn.in_proj_qkv"},
                                    {"attn_gate", "linear_attn.in_proj_z"},
                                    {"ssm_in", "linear_attn.in_proj_qkvz"},
                                    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", GgufChange::unsqueeze},
                                    {"ssm_dt.bias", "linear_attn.dt_bias"},
                                    {"ssm_a", "linear_attn.A_log", GgufChange::log_of_negative},
                                    {"ssm_norm", "linear_attn.norm"},
                                    {"ssm_out", "linear_attn.out_proj"},
                                    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", GgufChange::row},
                                    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                    {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};
  add_tensors(tensors, {.norm_change = minus_one}, joined({rules, mlp_rules()}));
}

}  // namespace

const GgufArchitecture gguf_qwen3next{"qwen3next", config, tensors};

}  // namespace medley
