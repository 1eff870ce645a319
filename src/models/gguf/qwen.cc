// qwen2, qwen3, qwen3moe and olmoe: names only.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json qwen2_config(const GgufKeys& keys) {
  return usual_config(keys, "qwen2");
}

nlohmann::json qwen3_config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "qwen3");
  json["attention_bias"] = keys.in_layer(0, "attn_q.bias");
  return json;
}

// Experts in every layer.
nlohmann::json with_experts(const GgufKeys& keys, nlohmann::json json, const char* size, bool renormalize) {
  json["attention_bias"] = keys.in_layer(0, "attn_q.bias");
  json["num_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  json["norm_topk_prob"] = renormalize;
  json[size] = keys.integer("expert_feed_forward_length", keys.integer("feed_forward_length"));
  return json;
}

nlohmann::json qwen3moe_config(const GgufKeys& keys) {
  return with_experts(keys, usual_config(keys, "qwen3_moe"), "moe_intermediate_size", true);
}

nlohmann::json olmoe_config(const GgufKeys& keys) {
  return with_experts(keys, usual_config(keys, "olmoe"), "intermediate_size", false);
}

void tensors(GgufTensors& tensors) {
  add_tensors(tensors, {}, joined({attention_rules(), mlp_rules()}));
}

}  // namespace

const GgufArchitecture gguf_qwen2{"qwen2", qwen2_config, tensors};
const GgufArchitecture gguf_qwen3{"qwen3", qwen3_config, tensors};
const GgufArchitecture gguf_qwen3moe{"qwen3moe", qwen3moe_config, tensors};
const GgufArchitecture gguf_olmoe{"olmoe", olmoe_config, tensors};

}  // namespace medley
