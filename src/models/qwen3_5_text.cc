// Qwen3.5's language model (Qwen Team 2026): Qwen3-Next's mixers, dense feed-forward parts.
#include "models/delta_net.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_qwen3_5_text(ConfigReader& config) {
  DecoderSpec spec = read_delta_net_stack(config, "qwen3_5_text");
  const MlpSpec mlp{.hidden = spec.info.hidden_size,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config)};
  if (!config.integers("mlp_only_layers").empty()) config.refuse("mlp_only_layers", "there are no experts here");
  add_delta_net_blocks(config, spec, DeltaNetLayout::separate,
                       [&](int64_t, const std::string& at) { return mlp.at(at); });
  return make_decoder(std::move(spec));
}

}  // namespace medley
