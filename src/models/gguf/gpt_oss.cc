// gpt-oss: gate and up of the experts are apart (Moe takes both forms).
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "gpt_oss");
  json["sliding_window"] = keys.integer("attention.sliding_window");
  json["layer_types"] = layer_types(sliding_layers(keys, 2), "sliding_attention", "full_attention");
  // The model's ramp is not rounded to whole dimensions; llama.cpp rounds it.
  json["rope_parameters"] = rope_config(keys, keys.number("rope.freq_base", 150000), false);
  json["intermediate_size"] = keys.integer("expert_feed_forward_length");
  json["num_local_experts"] = keys.integer("expert_count");
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  return json;
}

void tensors(GgufTensors& tensors) {
  const std::vector<GgufRule> rules{{"post_attention_norm", "post_attention_layernorm"},
                                    {"attn_sinks.weight", "self_attn.sinks"},
                                    {"ffn_gate_inp", "mlp.router"},
                                    {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                    {"ffn_up_exps", "mlp.experts.up_proj"},
                                    {"ffn_down_exps", "mlp.experts.down_proj"}};
  add_tensors(tensors, {}, joined({rules, attention_rules()}));
}

}  // namespace

const GgufArchitecture gguf_gpt_oss{"gpt-oss", config, tensors};

}  // namespace medley
