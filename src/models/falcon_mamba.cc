// Falcon Mamba (Zuo et al. 2024): Mamba with weightless norms on B, C and dt.
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {

std::unique_ptr<Model> make_falcon_mamba(ConfigReader& config) {
  DecoderSpec spec = read_backbone(config, "falcon_mamba", true);
  MambaSpec mixer = read_mamba(config, spec.info.hidden_size);
  mixer.parameter_norms = float(config.number("mixer_rms_eps", 1e-6));
  mixer.parameter_norm_weights = false;
  config.ignore({"use_falcon_mambapy"});
  add_backbone_blocks(config, spec, mixer);
  return make_decoder(std::move(spec));
}

}  // namespace medley
