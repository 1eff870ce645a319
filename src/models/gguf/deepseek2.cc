// deepseek2: DeepSeek-V2, V2-Lite, V3, R1 and what is built like them. Newer files hold kv_b_proj as two tensors, its
// part for the keys transposed; they are put together again.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/gguf/architectures.h"

namespace medley {
namespace {

constexpr int64_t gating_softmax = 1, gating_sigmoid = 2;

struct Heads {
  int64_t heads, rank, nope, rope, v_dim;
};

Heads read_heads(const GgufKeys& keys) {
  Heads sizes{};
  sizes.heads = keys.integer("attention.head_count");
  sizes.rank = keys.integer("attention.kv_lora_rank");
  sizes.rope = keys.integer("rope.dimension_count");
  sizes.nope = keys.integer("attention.key_length_mla", keys.integer("attention.key_length")) - sizes.rope;
  sizes.v_dim = keys.integer("attention.value_length_mla", keys.integer("attention.value_length"));
  return sizes;
}

void add_experts(const GgufKeys& keys, nlohmann::json& json, bool sigmoid) {
  json["first_k_dense_replace"] = keys.integer("leading_dense_block_count", 0);
  json["moe_intermediate_size"] = keys.integer("expert_feed_forward_length");
  json["n_routed_experts"] = keys.integer("expert_count");
  json["n_shared_experts"] = keys.integer("expert_shared_count", 0);
  json["num_experts_per_tok"] = keys.integer("expert_used_count");
  json["routed_scaling_factor"] = keys.number("expert_weights_scale", 1);
  json["norm_topk_prob"] = keys.boolean("expert_weights_norm", false);
  const int64_t groups = keys.integer("expert_group_count", 1);
  if (sigmoid || groups > 1) {
    json["n_group"] = groups;
    json["topk_group"] = keys.integer("expert_group_used_count", groups);
  }
  if (!sigmoid) json["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
}

nlohmann::json config(const GgufKeys& keys) {
  const Heads sizes = read_heads(keys);
  const int64_t gating = keys.integer("expert_gating_func", gating_softmax);
  if (gating != gating_softmax && gating != gating_sigmoid)
    fail("{}: expert_gating_func is {}; medley supports softmax (1) and sigmoid (2) here", keys.where(), gating);
  const bool sigmoid = gating == gating_sigmoid;
  nlohmann::json json = usual_config(keys, sigmoid ? "deepseek_v3" : "deepseek_v2");
  json["num_key_value_heads"] = sizes.heads;
  json["head_dim"] = sizes.rope;
  if (keys.integer("attention.q_lora_rank", 0) > 0) json["q_lora_rank"] = keys.integer("attention.q_lora_rank");
  json["kv_lora_rank"] = sizes.rank;
  json["qk_nope_head_dim"] = sizes.nope;
  json["qk_rope_head_dim"] = sizes.rope;
  json["v_head_dim"] = sizes.v_dim;
  nlohmann::json& rope = json["rope_parameters"];
  if (rope["rope_type"] == "yarn" && keys.has("rope.scaling.yarn_log_multiplier"))
    // A tenth of mscale_all_dim; that of mscale is no key, and equal to it in all published models.
    rope["mscale"] = rope["mscale_all_dim"] = 10 * keys.number("rope.scaling.yarn_log_multiplier");
  add_experts(keys, json, sigmoid);
  return json;
}

// k_b [heads, rank, nope] and v_b [heads, v_dim, rank] to W_uk [nope, rank] over W_uv [v_dim, rank], head by head.
void join_kv_b(const Heads& sizes, const std::string& where, const GgufTensors::Sources& from,
               std::vector<float>& out) {
  const std::vector<float> k_b = floats_of(*from[0]), v_b = floats_of(*from[1]);
  const int64_t nope = sizes.nope, rank = sizes.rank, rows = sizes.v_dim * rank;
  if (int64_t(k_b.size()) != sizes.heads * rank * nope || int64_t(v_b.size()) != sizes.heads * rows)
    fail("{}: attn_k_b and attn_v_b have {} and {} elements, which {} heads of {} + {} rows do not fit", where,
         k_b.size(), v_b.size(), sizes.heads, nope, sizes.v_dim);
  out.reserve(k_b.size() + v_b.size());
  for (int64_t head = 0; head < sizes.heads; ++head) {
    for (int64_t i = 0; i < nope; ++i)
      for (int64_t r = 0; r < rank; ++r) out.push_back(k_b[size_t((head * rank + r) * nope + i)]);
    out.insert(out.end(), v_b.begin() + head * rows, v_b.begin() + (head + 1) * rows);
  }
}

void tensors(GgufTensors& tensors) {
  const GgufKeys& keys = tensors.keys();
  const Heads sizes = read_heads(keys);
  for (int64_t layer = 0; layer < keys.layers(); ++layer) {
    const std::string at = fmt::format("blk.{}.", layer);
    if (keys.in_layer(layer, "attn_kv_b.weight")) {  // some files have it beside its parts
      tensors.skip(at + "attn_k_b.weight");
      tensors.skip(at + "attn_v_b.weight");
      continue;
    }
    tensors.make({at + "attn_k_b.weight", at + "attn_v_b.weight"},
                 fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", layer),
                 {sizes.heads * (sizes.nope + sizes.v_dim), sizes.rank},
                 [sizes, where = keys.where()](const GgufTensors::Sources& from, std::vector<float>& out) {
                   join_kv_b(sizes, where, from, out);
                 });
  }
  const std::vector<GgufRule> rules{{"attn_q_a", "self_attn.q_a_proj"},
                                    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                                    {"attn_q_b", "self_attn.q_b_proj"},
                                    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                                    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                                    {"attn_kv_b", "self_attn.kv_b_proj"},
                                    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
                                    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                    {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};
  add_tensors(tensors, {}, joined({rules, attention_rules(), mlp_rules()}));
}

}  // namespace

const GgufArchitecture gguf_deepseek2{"deepseek2", config, tensors};

}  // namespace medley
