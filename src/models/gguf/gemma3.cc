// gemma3: norms are stored as what they multiply with, Hugging Face's are zero-centred.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "gemma3_text");
  const int64_t window = keys.integer("attention.sliding_window", 0);
  const std::vector<bool> sliding =
      window > 0 ? sliding_layers(keys, 6) : std::vector<bool>(size_t(keys.layers()), false);
  json["layer_types"] = layer_types(sliding, "sliding_attention", "full_attention");
  json["sliding_window"] = window;
  json["rope_parameters"] = {
      {"full_attention", rope_config(keys, keys.number("rope.freq_base", 1e6))},
      {"sliding_attention", {{"rope_theta", keys.number("rope.freq_base_swa", 10000)}, {"rope_type", "default"}}}};
  // The scale of the scores is no key: all published sizes use the head's, but for 27B (62 layers).
  const bool largest = keys.layers() == 62;
  json["query_pre_attn_scalar"] = largest ? keys.integer("embedding_length") / keys.integer("attention.head_count")
                                          : keys.integer("attention.key_length", 256);
  if (keys.has("final_logit_softcapping")) json["final_logit_softcapping"] = keys.number("final_logit_softcapping");
  return json;
}

void tensors(GgufTensors& tensors) {
  constexpr GgufChange minus_one = GgufChange::minus_one;
  std::vector<GgufRule> rules{{"post_attention_norm", "post_attention_layernorm", minus_one},
                              {"ffn_norm", "pre_feedforward_layernorm", minus_one},
                              {"post_ffw_norm", "post_feedforward_layernorm", minus_one},
                              {"attn_norm", "input_layernorm", minus_one},
                              {"attn_q_norm", "self_attn.q_norm", minus_one},
                              {"attn_k_norm", "self_attn.k_norm", minus_one},
                              {"attn_q", "self_attn.q_proj"},
                              {"attn_k", "self_attn.k_proj"},
                              {"attn_v", "self_attn.v_proj"},
                              {"attn_output", "self_attn.o_proj"}};
  add_tensors(tensors, {.norm_change = minus_one}, joined({rules, mlp_rules()}));
}

}  // namespace

const GgufArchitecture gguf_gemma3{"gemma3", config, tensors};

}  // namespace medley
