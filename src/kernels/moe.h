// Mixture of experts between the router's logits and the sum of the experts' outputs:
// route -> align -> (dispatch) -> grouped_linear, activation, grouped_linear -> (combine) -> weighted_sum.
#pragma once

#include "kernels/op.h"

namespace medley {

enum class RouterScore : uint8_t { softmax, sigmoid, softmax_of_chosen };
enum class GroupScore : uint8_t { none, maximum, top2_sum };

// The published routing rules, as one description:
//   Mixtral      softmax, renormalise            Qwen3-MoE  softmax, norm_topk_prob
//   Jamba        softmax                         DeepSeek-V2  softmax, groups by maximum, scaling
//   DeepSeek-V3  sigmoid, correction bias, groups by the sum of their two best, renormalise, scaling
//   gpt-oss      top-k of the logits, softmax of the chosen
struct RoutingRule {
  RouterScore score = RouterScore::softmax;
  GroupScore group_score = GroupScore::none;
  int32_t experts = 0;
  int32_t top_k = 0;
  int32_t groups = 1;      // experts are cut into this many groups
  int32_t top_groups = 1;  // and only experts of the best so many are eligible
  bool renormalize = false;
  float scaling = 1;
  float sum_epsilon = 1e-20f;  // added to the sum of sigmoid scores that renormalises (DeepSeek-V3's; LFM2's is 1e-6)
};

struct RouteDesc {
  RoutingRule rule;
  std::string describe() const;
};
struct RouteArgs {
  TensorView logits;                       // f32 [tokens, experts]
  const float* correction_bias = nullptr;  // [experts]: added for the choice, not for the weight
  RoutingRule rule;
  TensorView topk_ids;      // i32 [tokens, top_k], ascending expert id: the order of the weighted sum
  TensorView topk_weights;  // f32 [tokens, top_k]
};
using RouteOp = Op<RouteDesc, RouteArgs>;
const RouteOp& route_op();

// align: sorts the pairs (token * top_k + k) by the slot of their expert, pads each slot's pairs to a multiple of
// block_m with num_pairs, and names each block's slot. Pairs of one slot keep ascending order.
struct AlignDesc {
  int32_t experts = 0;
  int32_t slots = 0;
  std::string describe() const;
};
struct AlignArgs {
  TensorView topk_ids;                      // i32 [tokens, top_k]
  const int32_t* expert_to_slot = nullptr;  // [experts]; -1: not on this rank, its pairs are left out
  int32_t experts = 0, slots = 0;
  int64_t block_m = 0;
  TensorView sorted_token_ids;        // i32 [capacity]
  TensorView expert_ids;              // i32 [capacity / block_m]
  TensorView num_tokens_post_padded;  // i32 [1]
};
using AlignOp = Op<AlignDesc, AlignArgs>;
const AlignOp& align_op();

// Entries that sorted_token_ids needs in the worst case.
int64_t align_capacity(int64_t pairs, int64_t slots, int64_t block_m);

// weighted_sum: y[t] (+)= sum over k, ascending, of topk_weights[t, k] * x[t * top_k + k].
struct WeightedSumDesc {
  int64_t dim = 0;
  std::string describe() const;
};
struct WeightedSumArgs {
  TensorView x;             // f32 [tokens * top_k, dim]
  TensorView topk_weights;  // f32 [tokens, top_k]
  TensorView y;             // f32 [tokens, dim]
  bool accumulate = false;
};
using WeightedSumOp = Op<WeightedSumDesc, WeightedSumArgs>;
const WeightedSumOp& weighted_sum_op();

}  // namespace medley
