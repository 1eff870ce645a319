#include "models/state_space_config.h"

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

}  // namespace medley
