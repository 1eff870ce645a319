// Granite 3 MoE (IBM 2024): attention and experts in every layer, multipliers on embedding, scores, residual and
// logits.
#include "models/families.h"
#include "models/granite.h"

namespace medley {

std::unique_ptr<Model> make_granitemoe(ConfigReader& config) {
  return make_decoder(read_granite_moe_stack(config, "granitemoe", false));
}

}  // namespace medley
