// llama: Llama, Mistral, SmolLM and with experts Mixtral. The rows of q and k stand as ggml's plain rope wants them.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json config(const GgufKeys& keys) {
  if (keys.integer("expert_count", 0) == 0) {
    nlohmann::json json = usual_config(keys, "llama");
    json["attention_bias"] = keys.in_layer(0, "attn_q.bias");
    json["mlp_bias"] = keys.in_layer(0, "ffn_up.bias");
    return json;
  }
  nlohmann::json json = usual_config(keys, "mixtral");
  json["num_local_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  return json;
}

void tensors(GgufTensors& tensors) {
  const auto rules = joined({attention_rules(GgufChange::unrope_q, GgufChange::unrope_k), mlp_rules()});
  if (tensors.keys().integer("expert_count", 0) == 0) return add_tensors(tensors, {}, rules);
  const std::vector<GgufRule> experts{
      {"ffn_gate_inp", "block_sparse_moe.gate"},
      {"ffn_gate_exps.weight", "block_sparse_moe.experts.E.w1.weight", GgufChange::experts},
      {"ffn_up_exps.weight", "block_sparse_moe.experts.E.w3.weight", GgufChange::experts},
      {"ffn_down_exps.weight", "block_sparse_moe.experts.E.w2.weight", GgufChange::experts}};
  add_tensors(tensors, {}, joined({attention_rules(GgufChange::unrope_q, GgufChange::unrope_k), experts}));
}

}  // namespace

const GgufArchitecture gguf_llama{"llama", config, tensors};

}  // namespace medley
