// Qwen3-Next (Qwen Team 2025): gated delta nets and gated attention; experts beside a shared one behind a sigmoid gate.
#include "models/delta_net.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_qwen3_next(ConfigReader& config) {
  DecoderSpec spec = read_delta_net_stack(config, "qwen3_next");
  const int64_t hidden = spec.info.hidden_size;
  const Activation activation = read_activation(config);
  const MlpSpec mlp{
      .hidden = hidden, .intermediate = config.integer("intermediate_size", 5632), .activation = activation};
  MlpSpec shared = mlp;
  shared.intermediate = config.integer("shared_expert_intermediate_size", 512);
  const MoeSpec moe{.hidden = hidden,
                    .intermediate = config.integer("moe_intermediate_size", 512),
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(config.integer("num_experts", 512)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 10)),
                             .renormalize = config.boolean("norm_topk_prob", true)},
                    .activation = activation,
                    .shared_gate = "shared_expert_gate.weight"};
  const std::vector<bool> sparse = read_sparse_layers(config, config.layers(), moe.rule.experts);
  add_delta_net_blocks(config, spec, DeltaNetLayout::by_key_head, [&](int64_t layer, const std::string& at) {
    if (!sparse[size_t(layer)]) return FeedForwardSpec(mlp.at(at));
    MoeSpec experts = moe.at(at);
    experts.shared = shared.at(at + "shared_expert.");
    return FeedForwardSpec(std::move(experts));
  });
  return make_decoder(std::move(spec));
}

}  // namespace medley
