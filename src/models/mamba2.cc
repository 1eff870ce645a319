// Mamba2 (Dao and Gu 2024), as transformers' Mamba2ForCausalLM.
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_mamba2(ConfigReader& config) {
  DecoderSpec spec = read_backbone(config, "mamba2", false);
  const int64_t hidden = spec.info.hidden_size;
  Mamba2Spec mixer{.hidden = hidden,
                   .heads = config.integer("num_heads", 128),
                   .head_dim = config.integer("head_dim", 64),
                   .states = config.integer("state_size", 128),
                   .groups = config.integer("n_groups", 8),
                   .conv_width = config.integer("conv_kernel", 4),
                   .conv_bias = config.boolean("use_conv_bias", true),
                   .proj_bias = config.boolean("use_bias", false),
                   .norm_eps = spec.norm.eps,
                   .norm_by_group = config.boolean("norm_by_group", false)};  // not transformers': GGUF's reading
  mixer.out_bias = mixer.proj_bias;
  if (mixer.heads * mixer.head_dim != config.integer("expand", 2) * hidden)
    config.refuse("num_heads", fmt::format("num_heads x head_dim must be expand x hidden_size"));
  read_time_step_limit(config, mixer);
  // chunk_size tiles the scan of others and changes no result.
  config.ignore({"chunk_size"});
  add_backbone_blocks(config, spec, mixer);
  return make_decoder(std::move(spec));
}

}  // namespace medley
