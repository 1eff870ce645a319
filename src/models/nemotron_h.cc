// Nemotron-H (NVIDIA 2025): each layer is one part alone, Mamba2, attention without rope, a squared-ReLU MLP or a
// mixture of such experts.
#include <limits>

#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

// layers_block_type, or the older hybrid_override_pattern, a letter a layer.
std::vector<std::string> read_parts(ConfigReader& config) {
  std::vector<std::string> parts = config.texts("layers_block_type");
  const std::string pattern = config.text("hybrid_override_pattern", "");
  for (size_t i = 0; config.texts("layers_block_type").empty() && i < pattern.size(); ++i) {
    switch (pattern[i]) {
      case 'M': parts.emplace_back("linear_attention"); break;
      case '*': parts.emplace_back("full_attention"); break;
      case '-': parts.emplace_back("mlp"); break;
      case 'E': parts.emplace_back("moe"); break;
      default: config.refuse("hybrid_override_pattern", "medley knows the letters M, *, - and E");
    }
  }
  if (parts.empty()) config.refuse("layers_block_type", "the kinds of the layers are wanted");
  config.require("num_hidden_layers", int64_t(parts.size()));
  return parts;
}

MoeSpec read_moe(ConfigReader& config, const MlpSpec& mlp) {
  MoeSpec moe{.hidden = mlp.hidden,
              .intermediate = config.integer("moe_intermediate_size", 7688),
              .rule = {.score = RouterScore::sigmoid,
                       .group_score = GroupScore::top2_sum,
                       .experts = int32_t(config.integer("n_routed_experts", 8)),
                       .top_k = int32_t(config.integer("num_experts_per_tok", 2)),
                       .groups = int32_t(config.integer("n_group", 1)),
                       .top_groups = int32_t(config.integer("topk_group", 1)),
                       .renormalize = config.boolean("norm_topk_prob", true),
                       .scaling = float(config.number("routed_scaling_factor", 1))},
              .activation = mlp.activation,
              .correction_bias = "gate.e_score_correction_bias",
              .gate = ""};
  moe.shared = mlp;
  moe.shared->intermediate = config.integer("moe_shared_expert_intermediate_size", 7688);
  if (config.has("moe_latent_size"))
    config.refuse("moe_latent_size", "medley supports experts on the hidden size only");
  config.ignore({"moe_latent_size", "n_shared_experts", "moe_shared_expert_overlap"});
  return moe;
}

Mamba2Spec read_mixer(ConfigReader& config, const DecoderSpec& spec) {
  Mamba2Spec mamba{.hidden = spec.info.hidden_size,
                   .heads = config.integer("mamba_num_heads", 128),
                   .head_dim = config.integer("mamba_head_dim", 64),
                   .states = config.integer("ssm_state_size", 128),
                   .groups = config.integer("n_groups", 8),
                   .conv_width = config.integer("conv_kernel", 4),
                   .conv_bias = config.boolean("use_conv_bias", true),
                   .proj_bias = config.boolean("use_bias", false),
                   .norm_eps = spec.norm.eps,
                   .norm_by_group = true};
  mamba.out_bias = mamba.proj_bias;
  // transformers clamps dt from below by time_step_min and does not read time_step_limit.
  mamba.dt_min = float(config.number("time_step_min", 0.001));
  mamba.dt_max = std::numeric_limits<float>::infinity();
  config.require("mamba_hidden_act", "silu");
  config.require("mamba_ssm_cache_dtype", "float32");
  config.ignore({"time_step_limit", "mamba_proj_bias", "expand", "chunk_size", "time_step_max", "time_step_floor",
                 "use_mamba_kernels", "rescale_prenorm_residual", "residual_in_fp32"});
  return mamba;
}

}  // namespace

std::unique_ptr<Model> make_nemotron_h(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "nemotron_h");
  spec.embedding = "backbone.embeddings.weight";
  spec.final_norm = "backbone.norm_f.weight";
  spec.norm.eps = float(config.number("layer_norm_epsilon", config.number("rms_norm_eps", 1e-5)));
  config.ignore({"rms_norm_eps", "norm_eps"});
  config.ignore({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"});  // nothing is rotated
  const std::vector<std::string> parts = read_parts(config);
  const TransformerConfig t{.hidden = spec.info.hidden_size,
                            .layers = int64_t(parts.size()),
                            .heads = config.integer("num_attention_heads", 32),
                            .kv_heads = config.integer("num_key_value_heads", 8),
                            .head_dim = config.integer("head_dim", 128)};
  const Mamba2Spec mamba = read_mixer(config, spec);
  const MlpSpec mlp{.hidden = t.hidden,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config, "mlp_hidden_act"),
                    .bias = config.boolean("mlp_bias", false),
                    .gate = ""};
  const MoeSpec moe = read_moe(config, mlp);
  config.require("num_nextn_predict_layers", int64_t(0));
  config.require("attention_bias", false);
  config.require("attention_head_dim", t.head_dim);
  if (config.has("sliding_window")) config.refuse("sliding_window", "medley supports full attention here");
  config.ignore({"sliding_window", "mtp_layers_block_type", "mtp_hybrid_override_pattern", "num_logits_to_keep"});
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = fmt::format("backbone.layers.{}.", layer), inner = at + "mixer.";
    const std::string& part = parts[size_t(layer)];
    BlockSpec block{.mixer_norm = at + "norm.weight", .feed_forward_norm = at + "norm.weight"};
    if (part == "linear_attention" || part == "mamba") {
      block.mixer = mamba.at(inner);
    } else if (part == "full_attention" || part == "attention") {
      GqaSpec attention = usual_attention(t, inner);
      attention.rope = -1;
      block.mixer = attention;
    } else if (part == "mlp") {
      block.feed_forward = mlp.at(inner);
    } else if (part == "moe") {
      MoeSpec experts = moe.at(inner);
      experts.shared = moe.shared->at(inner + "shared_experts.");
      block.feed_forward = std::move(experts);
    } else {
      config.refuse("layers_block_type", fmt::format("medley does not know \"{}\"", part));
    }
    spec.blocks.push_back(std::move(block));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
