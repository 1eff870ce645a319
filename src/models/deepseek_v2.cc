// DeepSeek-V2 and V2-Lite (DeepSeek-AI 2024): softmax routing, in V2 limited to the groups with the best single expert.
#include "models/deepseek.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_deepseek_v2(ConfigReader& config) {
  DeepseekRouting routing;
  RoutingRule& rule = routing.rule;
  rule.score = RouterScore::softmax;
  rule.experts = int32_t(config.integer("n_routed_experts", 64));
  rule.top_k = int32_t(config.integer("num_experts_per_tok"));
  rule.scaling = float(config.number("routed_scaling_factor", 1));
  const std::string method = config.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    rule.group_score = GroupScore::maximum;
    rule.groups = int32_t(config.integer("n_group"));
    rule.top_groups = int32_t(config.integer("topk_group"));
  } else if (method != "greedy") {
    config.refuse("topk_method", "medley supports greedy and group_limited_greedy");
  }
  config.ignore({"n_group", "topk_group"});  // greedy has no groups
  config.require("scoring_func", "softmax");
  config.require("norm_topk_prob", false);
  config.require("mlp_bias", false);
  return make_decoder(read_deepseek(config, "deepseek_v2", true, routing));
}

}  // namespace medley
