// LFM2-MoE (Liquid AI 2025): LFM2's stack; experts by sigmoid scores with a bias for the choice after num_dense_layers.
#include "models/families.h"
#include "models/lfm2.h"

namespace medley {

std::unique_ptr<Model> make_lfm2_moe(ConfigReader& config) {
  DecoderSpec spec = read_lfm2_stack(config, "lfm2_moe");
  const int64_t hidden = spec.info.hidden_size, dense_layers = config.integer_or_zero("num_dense_layers", 2);
  const MlpSpec mlp = lfm2_mlp(hidden, config.integer("intermediate_size"));
  const MoeSpec moe{.hidden = hidden,
                    .intermediate = config.integer("moe_intermediate_size"),
                    .rule = {.score = RouterScore::sigmoid,
                             .experts = int32_t(config.integer("num_experts", 32)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 4)),
                             .renormalize = config.boolean("norm_topk_prob", true),
                             .scaling = float(config.number("routed_scaling_factor", 1)),
                             .sum_epsilon = 1e-6f},
                    .correction_bias = config.boolean("use_expert_bias", true) ? "expert_bias" : "",
                    .gate = mlp.gate,
                    .up = mlp.up,
                    .down = mlp.down};
  add_lfm2_blocks(config, spec, [&](int64_t layer, const std::string& at) {
    return layer < dense_layers ? FeedForwardSpec(mlp.at(at)) : moe.at(at);
  });
  return make_decoder(std::move(spec));
}

}  // namespace medley
