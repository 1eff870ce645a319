// jamba: which layers are attention and which have experts follows from the key heads and the tensors that are there.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/gguf/architectures.h"

namespace medley {
namespace {

// NAME_period and NAME_offset of the layers that are so.
void add_period(const GgufKeys& keys, const std::vector<bool>& is, const std::string& name, nlohmann::json& json) {
  const auto count = int64_t(is.size());
  for (int64_t period = 1; period <= count; ++period)
    for (int64_t offset = 0; offset < period; ++offset) {
      bool fits = true;
      for (int64_t i = 0; i < count; ++i) fits = fits && is[size_t(i)] == (i % period == offset);
      if (!fits) continue;
      json[name + "_period"] = period;
      json[name + "_offset"] = offset;
      return;
    }
  fail("{}: its layers of the kind \"{}\" do not stand at equal distances, which medley's jamba wants", keys.where(),
       name);
}

nlohmann::json config(const GgufKeys& keys) {
  nlohmann::json json = usual_config(keys, "jamba");
  for (const char* field : {"rope_parameters", "head_dim"}) json.erase(field);
  json["mamba_expand"] = keys.integer("ssm.inner_size") / keys.integer("embedding_length");
  json["mamba_d_state"] = keys.integer("ssm.state_size");
  json["mamba_d_conv"] = keys.integer("ssm.conv_kernel");
  json["mamba_dt_rank"] = keys.integer("ssm.time_step_rank");
  std::vector<bool> experts, attention = attention_layers(keys);
  for (int64_t layer = 0; layer < keys.layers(); ++layer) {
    experts.push_back(keys.in_layer(layer, "ffn_gate_inp.weight"));
    if (attention[size_t(layer)]) continue;
    json["mamba_conv_bias"] = keys.in_layer(layer, "ssm_conv1d.bias");
    json["mamba_proj_bias"] = keys.in_layer(layer, "ssm_in.bias");
  }
  add_period(keys, attention, "attn_layer", json);
  json["num_experts"] = keys.integer("expert_count", 1);
  json["num_experts_per_tok"] = keys.integer("expert_used_count", 1);
  if (json["num_experts"] > 1) add_period(keys, experts, "expert_layer", json);
  return json;
}

void tensors(GgufTensors& tensors) {
  const std::vector<GgufRule> rules{
      {"ffn_norm", "pre_ff_layernorm"},
      {"ssm_dt", "mamba.dt_proj"},
      {"ssm_dt_norm", "mamba.dt_layernorm"},
      {"ssm_b_norm", "mamba.b_layernorm"},
      {"ssm_c_norm", "mamba.c_layernorm"},
      {"ffn_gate", "feed_forward.gate_proj"},
      {"ffn_up", "feed_forward.up_proj"},
      {"ffn_down", "feed_forward.down_proj"},
      {"ffn_gate_inp", "feed_forward.router"},
      {"ffn_gate_exps.weight", "feed_forward.experts.E.gate_proj.weight", GgufChange::experts},
      {"ffn_up_exps.weight", "feed_forward.experts.E.up_proj.weight", GgufChange::experts},
      {"ffn_down_exps.weight", "feed_forward.experts.E.down_proj.weight", GgufChange::experts},
      {"attn_norm", "input_layernorm"},
      {"attn_q", "self_attn.q_proj"},
      {"attn_k", "self_attn.k_proj"},
      {"attn_v", "self_attn.v_proj"},
      {"attn_output", "self_attn.o_proj"}};
  add_tensors(tensors, {.final_norm = "model.final_layernorm.weight"}, joined({rules, mamba_rules("mamba.")}));
}

}  // namespace

const GgufArchitecture gguf_jamba{"jamba", config, tensors};

}  // namespace medley
