// lfm2 and lfm2moe: layers without key heads are short convolutions.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json stack(const GgufKeys& keys, const char* model_type) {
  nlohmann::json json = usual_config(keys, model_type);
  json["norm_eps"] = json["rms_norm_eps"];
  for (const char* field : {"rms_norm_eps", "head_dim"}) json.erase(field);
  json["layer_types"] = layer_types(attention_layers(keys), "full_attention", "conv");
  json["conv_L_cache"] = keys.integer("shortconv.l_cache");
  json["conv_bias"] = false;
  return json;
}

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = stack(keys, "lfm2");
  json["block_auto_adjust_ff_dim"] = false;  // the size is the final one
  return json;
}

nlohmann::json moe_config(const GgufKeys& keys) {
  nlohmann::json json = stack(keys, "lfm2_moe");
  json["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
  json["num_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  json["num_dense_layers"] = keys.integer("leading_dense_block_count", 0);
  json["routed_scaling_factor"] = keys.number("expert_weights_scale", 1);
  json["norm_topk_prob"] = true;
  json["use_expert_bias"] = keys.in_layer(keys.layers() - 1, "exp_probs_b.bias");
  return json;
}

void tensors(GgufTensors& tensors) {
  const std::vector<GgufRule> rules{{"attn_norm", "operator_norm"},
                                    {"ffn_norm", "ffn_norm"},
                                    {"shortconv.conv.weight", "conv.conv.weight", GgufChange::unsqueeze},
                                    {"shortconv.in_proj", "conv.in_proj"},
                                    {"shortconv.out_proj", "conv.out_proj"},
                                    {"attn_q", "self_attn.q_proj"},
                                    {"attn_k", "self_attn.k_proj"},
                                    {"attn_v", "self_attn.v_proj"},
                                    {"attn_output", "self_attn.out_proj"},
                                    {"attn_q_norm", "self_attn.q_layernorm"},
                                    {"attn_k_norm", "self_attn.k_layernorm"},
                                    {"ffn_gate", "feed_forward.w1"},
                                    {"ffn_up", "feed_forward.w3"},
                                    {"ffn_down", "feed_forward.w2"},
                                    {"ffn_gate_inp", "feed_forward.gate"},
                                    {"exp_probs_b.bias", "feed_forward.expert_bias"},
                                    {"ffn_gate_exps.weight", "feed_forward.experts.E.w1.weight", GgufChange::experts},
                                    {"ffn_up_exps.weight", "feed_forward.experts.E.w3.weight", GgufChange::experts},
                                    {"ffn_down_exps.weight", "feed_forward.experts.E.w2.weight", GgufChange::experts}};
  // Both names of the final norm are in use.
  const bool old = tensors.keys().tensor("output_norm.weight") == nullptr;
  add_tensors(tensors,
              {.final_norm = "model.embedding_norm.weight",
               .stored_final_norm = old ? "token_embd_norm.weight" : "output_norm.weight"},
              rules);
}

}  // namespace

const GgufArchitecture gguf_lfm2{"lfm2", config, tensors};
const GgufArchitecture gguf_lfm2moe{"lfm2moe", moe_config, tensors};

}  // namespace medley
