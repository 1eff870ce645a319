// mamba (with norms on B, C and dt: Falcon Mamba) and mamba2.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/gguf/architectures.h"

namespace medley {
namespace {

const GgufNames names{
    .embedding = "backbone.embeddings.weight", .final_norm = "backbone.norm_f.weight", .layers = "backbone.layers."};

nlohmann::json mamba_config(const GgufKeys& keys) {
  const bool norms = keys.boolean("ssm.dt_b_c_rms", false);
  nlohmann::json json = state_config(keys, norms ? "falcon_mamba" : "mamba");
  json["intermediate_size"] = keys.integer("ssm.inner_size");
  json["time_step_rank"] = keys.integer("ssm.time_step_rank");
  if (norms) json["mixer_rms_eps"] = keys.number("attention.layer_norm_rms_epsilon", 1e-5);
  return json;
}

nlohmann::json mamba2_config(const GgufKeys& keys) {
  const GgufMamba2 sizes = read_mamba2(keys);
  const int64_t hidden = keys.integer("embedding_length");
  if (sizes.inner % hidden != 0)
    fail("{}: ssm.inner_size {} is no multiple of embedding_length {}", keys.where(), sizes.inner, hidden);
  nlohmann::json json = state_config(keys, "mamba2");
  json["num_heads"] = sizes.heads;
  json["head_dim"] = sizes.head_dim;
  json["n_groups"] = sizes.groups;
  json["expand"] = sizes.inner / hidden;
  if (sizes.groups > 1) json["norm_by_group"] = true;
  return json;
}

void mamba_tensors(GgufTensors& tensors) {
  add_tensors(tensors, names, joined({{{"attn_norm", "norm"}, {"ssm_dt", "mixer.dt_proj"}}, mamba_rules("mixer.")}));
}

void mamba2_tensors(GgufTensors& tensors) {
  add_tensors(tensors, names,
              joined({{{"attn_norm", "norm"}, {"ssm_dt.bias", "mixer.dt_bias"}}, mamba_rules("mixer.")}));
}

}  // namespace

const GgufArchitecture gguf_mamba{"mamba", mamba_config, mamba_tensors};
const GgufArchitecture gguf_mamba2{"mamba2", mamba2_config, mamba2_tensors};

}  // namespace medley
