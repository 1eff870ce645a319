// Mamba (Gu and Dao 2023), as transformers' MambaForCausalLM.
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_mamba(ConfigReader& config) {
  DecoderSpec spec = read_backbone(config, "mamba", true);
  add_backbone_blocks(config, spec, read_mamba(config, spec.info.hidden_size));
  return make_decoder(std::move(spec));
}

}  // namespace medley
