// DeepSeek-V3 and R1 (DeepSeek-AI 2024): sigmoid scores, a correction bias for the choice, groups by the sum of their
// two best, multi-token prediction.
#include "models/deepseek.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_deepseek_v3(ConfigReader& config) {
  DeepseekRouting routing;
  RoutingRule& rule = routing.rule;
  rule.score = RouterScore::sigmoid;
  rule.group_score = GroupScore::top2_sum;
  rule.experts = int32_t(config.integer("n_routed_experts", 256));
  rule.top_k = int32_t(config.integer("num_experts_per_tok", 8));
  rule.groups = int32_t(config.integer("n_group", 8));
  rule.top_groups = int32_t(config.integer("topk_group", 4));
  rule.renormalize = config.boolean("norm_topk_prob", true);
  rule.scaling = float(config.number("routed_scaling_factor", 2.5));
  routing.correction_bias = "gate.e_score_correction_bias";
  config.require("topk_method", "noaux_tc");
  config.require("scoring_func", "sigmoid");
  return make_decoder(read_deepseek(config, "deepseek_v3", config.boolean("rope_interleave", true), routing));
}

}  // namespace medley
