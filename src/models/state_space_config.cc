#include "models/state_space_config.h"

#include <limits>

namespace medley {

int64_t read_dt_rank(ConfigReader& config, const std::string& field, int64_t hidden) {
  if (config.is_text(field) || !config.has(field)) {
    config.require(field, "auto");
    return (hidden + 15) / 16;
  }
  return config.integer(field);
}

DecoderSpec read_backbone(ConfigReader& config, const std::string& model_type, bool tied_by_default) {
  DecoderSpec spec = read_stack(config, model_type);
  spec.tied = config.boolean("tie_word_embeddings", tied_by_default);
  spec.embedding = "backbone.embeddings.weight";
  spec.final_norm = "backbone.norm_f.weight";
  spec.norm.eps = float(config.number("layer_norm_epsilon", 1e-5));
  config.require("hidden_act", "silu");
  config.require("rms_norm", true);
  // How weights were initialised, and which of transformers' own loops runs the scan. The residual stream is always
  // float32 here.
  config.ignore({"residual_in_fp32", "rescale_prenorm_residual", "time_step_floor", "time_step_init_scheme",
                 "time_step_max", "time_step_min", "time_step_scale", "time_step_rank", "use_associative_scan",
                 "use_mambapy", "fused_add_norm", "n_layer", "pad_vocab_size_multiple"});
  return spec;
}

MambaSpec read_mamba(ConfigReader& config, int64_t hidden) {
  return {.hidden = hidden,
          .channels = config.integer("intermediate_size", config.integer("expand", 2) * hidden),
          .states = config.integer("state_size", 16),
          .conv_width = config.integer("conv_kernel", 4),
          .dt_rank = read_dt_rank(config, "time_step_rank", hidden),
          .conv_bias = config.boolean("use_conv_bias", true),
          .proj_bias = config.boolean("use_bias", false)};
}

Mamba2Spec read_mamba2_block(ConfigReader& config, int64_t hidden, int64_t inner, NormRule norm) {
  Mamba2Spec mixer{.hidden = hidden,
                   .heads = config.integer("mamba_n_heads", 128),
                   .states = config.integer("mamba_d_state", 256),
                   .groups = config.integer("mamba_n_groups", 1),
                   .conv_width = config.integer("mamba_d_conv", 4),
                   .conv_bias = config.boolean("mamba_conv_bias", true),
                   .proj_bias = config.boolean("mamba_proj_bias", false),
                   .norm_eps = norm.eps,
                   .norm_by_group = config.boolean("norm_by_group", false)};  // not transformers': GGUF's reading
  mixer.out_bias = mixer.proj_bias;
  if (mixer.heads <= 0 || mixer.groups <= 0) config.refuse("mamba_n_heads", "heads and groups must be above 0");
  if (config.is_text("mamba_d_head") || !config.has("mamba_d_head")) {
    config.require("mamba_d_head", "auto");
    mixer.head_dim = inner / mixer.heads;
  } else {
    mixer.head_dim = config.integer("mamba_d_head");
  }
  if (mixer.heads * mixer.head_dim != inner)
    config.refuse("mamba_n_heads", fmt::format("times mamba_d_head it must be the layer's {} channels", inner));
  read_time_step_limit(config, mixer);
  config.ignore({"mamba_chunk_size"});  // tiles the scan of others and changes no result
  return mixer;
}

void read_time_step_limit(ConfigReader& config, Mamba2Spec& mixer) {
  const std::vector<double> limit = config.numbers("time_step_limit");
  if (!limit.empty() && (limit.size() != 2 || limit[0] > limit[1]))
    config.refuse("time_step_limit", "two ascending numbers are wanted");
  mixer.dt_min = limit.empty() ? 0 : float(limit[0]);
  mixer.dt_max = limit.empty() ? std::numeric_limits<float>::infinity() : float(limit[1]);
}

std::vector<bool> read_full_attention_layers(ConfigReader& config, const std::string& field, int64_t layers) {
  const std::vector<std::string> types = config.texts(field);
  if (int64_t(types.size()) != layers) config.refuse(field, fmt::format("one entry per layer ({}) is wanted", layers));
  std::vector<bool> attention;
  for (const std::string& type : types) {
    attention.push_back(type == "full_attention" || type == "attention");
    if (!attention.back() && type != "linear_attention" && type != "mamba" && type != "conv")
      config.refuse(field, fmt::format("medley does not know \"{}\" here", type));
  }
  return attention;
}

}  // namespace medley
