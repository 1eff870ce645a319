// Mamba (Gu and Dao 2023), as transformers' MambaForCausalLM.
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_mamba(ConfigReader& config) {
  DecoderSpec spec = read_backbone(config, "mamba", true);
  const int64_t hidden = spec.info.hidden_size;
  MambaSpec mixer{.hidden = hidden,
                  .channels = config.integer("intermediate_size", config.integer("expand", 2) * hidden),
                  .states = config.integer("state_size", 16),
                  .conv_width = config.integer("conv_kernel", 4),
                  .dt_rank = read_dt_rank(config, "time_step_rank", hidden),
                  .conv_bias = config.boolean("use_conv_bias", true),
                  .proj_bias = config.boolean("use_bias", false)};
  add_backbone_blocks(config, spec, mixer);
  return make_decoder(std::move(spec));
}

}  // namespace medley
