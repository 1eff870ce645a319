// Kimi Linear (Kimi Team 2025): Kimi delta attention with latent attention (without rope) every fourth layer, experts
// as DeepSeek-V3's.
#include "models/deepseek.h"
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

struct Layers {
  KdaSpec kda;
  std::vector<bool> full_attention;
};

// The published file keeps these fields in linear_attn_config, with layers counted from 1.
Layers read_linear_attention(ConfigReader& config, const DecoderSpec& spec, int64_t layers) {
  Layers read{{.hidden = spec.info.hidden_size,
               .heads = config.integer("linear_num_heads", 32),
               .dim = config.integer("linear_head_dim", 128),
               .conv_width = config.integer("linear_conv_kernel_dim", 4),
               .norm_eps = spec.norm.eps},
              {}};
  for (int64_t layer = 0; layer < layers; ++layer) read.full_attention.push_back(layer > 0 && layer % 4 == 0);
  if (auto published = config.object("linear_attn_config")) {
    read.kda.heads = published->integer("num_heads", read.kda.heads);
    read.kda.dim = published->integer("head_dim", read.kda.dim);
    read.kda.conv_width = published->integer("short_conv_kernel_size", read.kda.conv_width);
    const std::vector<int64_t> full = published->integers("full_attn_layers"), kda = published->integers("kda_layers");
    if (!full.empty() && !kda.empty()) {
      if (int64_t(full.size() + kda.size()) != layers)
        published->refuse("kda_layers", fmt::format("with full_attn_layers all {} layers are wanted", layers));
      read.full_attention.assign(size_t(layers), false);
      for (const int64_t layer : full) {
        if (layer < 1 || layer > layers) published->refuse("full_attn_layers", "it names a layer that is not there");
        read.full_attention[size_t(layer - 1)] = true;
      }
    }
    published->finish();
  }
  if (config.has("layer_types")) read.full_attention = read_full_attention_layers(config, "layer_types", layers);
  return read;
}

// A size under its new name or its old one.
int64_t read_either(ConfigReader& config, const char* name, const char* other, int64_t fallback) {
  const int64_t value = config.integer(other, fallback);
  return config.integer(name, value);
}

MoeSpec read_moe(ConfigReader& config, int64_t hidden, Activation activation) {
  MoeSpec moe{.hidden = hidden,
              .intermediate = config.integer("moe_intermediate_size", 1024),
              .rule = {.score = RouterScore::sigmoid,
                       .group_score = GroupScore::top2_sum,
                       .experts = int32_t(read_either(config, "num_experts", "num_local_experts", 256)),
                       .top_k = int32_t(read_either(config, "num_experts_per_token", "num_experts_per_tok", 8)),
                       .groups = int32_t(read_either(config, "num_expert_group", "n_group", 1)),
                       .top_groups = int32_t(config.integer("topk_group", 1)),
                       .renormalize = config.boolean("moe_renormalize", config.boolean("norm_topk_prob", true)),
                       .scaling = float(config.number("routed_scaling_factor", 2.446))},
              .activation = activation,
              .correction_bias = "gate.e_score_correction_bias",
              .gate = "w1",
              .up = "w3",
              .down = "w2"};
  moe.shared =
      MlpSpec{.hidden = hidden,
              .intermediate = moe.intermediate * read_either(config, "num_shared_experts", "n_shared_experts", 1),
              .activation = activation};
  config.require("n_routed_experts", int64_t(moe.rule.experts));
  config.require("moe_router_activation_func", "sigmoid");
  config.require("moe_layer_freq", int64_t(1));
  config.require("use_grouped_topk", true);
  return moe;
}

}  // namespace

std::unique_ptr<Model> make_kimi_linear(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "kimi_linear");
  spec.info.max_positions = config.integer("model_max_length", spec.info.max_positions);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  const int64_t hidden = spec.info.hidden_size, layers = config.layers();
  const Layers mixers = read_linear_attention(config, spec, layers);
  MlaSpec mla = read_mla(config, spec);
  mla.rope = -1;
  config.require("mla_use_nope", true);
  config.ignore({"rope_theta", "rope_scaling"});  // nothing is rotated
  const Activation activation = read_activation(config);
  const MoeSpec moe = read_moe(config, hidden, activation);
  const MlpSpec mlp{
      .hidden = hidden, .intermediate = config.integer("intermediate_size", 9216), .activation = activation};
  const std::vector<bool> sparse = read_sparse_from(config, layers, 1);
  config.require("num_nextn_predict_layers", int64_t(0));
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = layer_prefix(layer), mixer_at = at + "self_attn.", moe_at = at + "block_sparse_moe.";
    MixerSpec mixer = mixers.kda.at(mixer_at);
    if (mixers.full_attention[size_t(layer)]) {
      MlaSpec attention = mla;
      attention.prefix = mixer_at;
      mixer = attention;
    }
    if (sparse[size_t(layer)]) {
      MoeSpec experts = moe.at(moe_at);
      experts.shared = moe.shared->at(moe_at + "shared_experts.");
      spec.blocks.push_back(usual_block(layer, std::move(mixer), std::move(experts)));
    } else {
      MlpSpec dense = mlp.at(at + "mlp.");
      dense.or_prefix = moe_at;  // as transformers exports it
      spec.blocks.push_back(usual_block(layer, std::move(mixer), dense));
    }
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
