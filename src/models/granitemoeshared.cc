// Granite MoE with an MLP of shared_intermediate_size beside the experts (IBM 2024).
#include "models/families.h"
#include "models/granite.h"

namespace medley {

std::unique_ptr<Model> make_granitemoeshared(ConfigReader& config) {
  return make_decoder(read_granite_moe_stack(config, "granitemoeshared", true));
}

}  // namespace medley
