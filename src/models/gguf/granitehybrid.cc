// granitehybrid: Granite 4. Gate and up of the shared MLP become one matrix again; those of the experts stay apart.
#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"

namespace medley {
namespace {

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "granitemoehybrid");
  const int64_t hidden = keys.integer("embedding_length"), experts = keys.integer("expert_count", 0);
  const GgufMamba2 sizes = read_mamba2(keys);
  json["embedding_multiplier"] = keys.number("embedding_scale", 1);
  json["attention_multiplier"] = keys.number("attention.scale", 1);
  json["residual_multiplier"] = keys.number("residual_scale", 1);
  json["logits_scaling"] = keys.number("logit_scale", 1);
  json["num_local_experts"] = experts;
  json["num_experts_per_tok"] = keys.integer("expert_used_count", 0);
  json["shared_intermediate_size"] =
      experts > 0 ? keys.integer("expert_shared_feed_forward_length", 0) : json["intermediate_size"].get<int64_t>();
  // The key says whether there is a rope at all.
  json["position_embedding_type"] = keys.boolean("rope.scaling.finetuned", true) ? "rope" : "nope";
  const std::vector<bool> attention = attention_layers(keys);
  json["layer_types"] = layer_types(attention, "attention", "mamba");
  json["mamba_n_heads"] = sizes.heads;
  json["mamba_d_head"] = sizes.head_dim;
  json["mamba_d_state"] = sizes.states;
  json["mamba_n_groups"] = sizes.groups;
  json["mamba_d_conv"] = sizes.conv_width;
  json["mamba_expand"] = sizes.inner / hidden;
  if (sizes.groups > 1) json["norm_by_group"] = true;
  for (int64_t layer = 0; layer < keys.layers(); ++layer) {
    if (attention[size_t(layer)]) {
      json["attention_bias"] = keys.in_layer(layer, "attn_q.bias");
    } else {
      json["mamba_conv_bias"] = keys.in_layer(layer, "ssm_conv1d.bias");
      json["mamba_proj_bias"] = keys.in_layer(layer, "ssm_in.bias");
    }
  }
  return json;
}

void tensors(GgufTensors& tensors) {
  const GgufKeys& keys = tensors.keys();
  const std::string end = keys.integer("expert_count", 0) > 0 ? "_shexp.weight" : ".weight";
  for (int64_t layer = 0; layer < keys.layers(); ++layer) {
    const std::string at = fmt::format("blk.{}.", layer), to = fmt::format("model.layers.{}.shared_mlp.", layer);
    const auto name = [&](const char* part) { return fmt::format("{}{}{}", at, part, end); };
    tensors.join({name("ffn_gate"), name("ffn_up")}, to + "input_linear.weight");
    tensors.add(name("ffn_down"), to + "output_linear.weight");
  }
  const std::vector<GgufRule> rules{{"ssm_dt.bias", "mamba.dt_bias"},
                                    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
                                    {"ffn_gate_exps", "block_sparse_moe.experts.gate_proj"},
                                    {"ffn_up_exps", "block_sparse_moe.experts.up_proj"},
                                    {"ffn_down_exps", "block_sparse_moe.experts.down_proj"}};
  add_tensors(tensors, {},
              joined({rules, attention_rules(GgufChange::unrope_q, GgufChange::unrope_k), mamba_rules("mamba.")}));
}

}  // namespace

const GgufArchitecture gguf_granitehybrid{"granitehybrid", config, tensors};

}  // namespace medley
