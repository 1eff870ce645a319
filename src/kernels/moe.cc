#include "kernels/moe.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<RouteDesc, RouteArgs> route;
extern const Implementation<AlignDesc, AlignArgs> align;
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum;
}  // namespace ref
namespace simd {
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum;
}  // namespace simd
namespace cuda {
extern const Implementation<RouteDesc, RouteArgs> route;
extern const Implementation<AlignDesc, AlignArgs> align;
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum;
}  // namespace cuda

namespace {

void check_route(const RouteArgs& a) {
  check_tensor("route", "logits", a.logits, {-1, a.rule.experts}, {DType::f32});
  check_tensor("route", "topk_ids", a.topk_ids, {a.logits.size(0), a.rule.top_k}, {DType::i32});
  check_tensor("route", "topk_weights", a.topk_weights, {a.logits.size(0), a.rule.top_k}, {DType::f32});
}

void check_align(const AlignArgs& a) {
  check_tensor("align", "topk_ids", a.topk_ids, {-1, -1}, {DType::i32});
  const int64_t capacity = align_capacity(a.topk_ids.elements(), a.slots, a.block_m);
  check_tensor("align", "sorted_token_ids", a.sorted_token_ids, {capacity}, {DType::i32});
  check_tensor("align", "expert_ids", a.expert_ids, {capacity / a.block_m}, {DType::i32});
  check_tensor("align", "num_tokens_post_padded", a.num_tokens_post_padded, {1}, {DType::i32});
}

void check_sum(const WeightedSumArgs& a) {
  check_tensor("weighted_sum", "topk_weights", a.topk_weights, {-1, -1}, {DType::f32});
  check_tensor("weighted_sum", "x", a.x, {a.topk_weights.elements(), -1}, {DType::f32});
  check_tensor("weighted_sum", "y", a.y, {a.topk_weights.size(0), a.x.size(1)}, {DType::f32});
}

}  // namespace

int64_t align_capacity(int64_t pairs, int64_t slots, int64_t block_m) {
  // Each slot that has any pair wastes at most block_m - 1 entries.
  const int64_t worst = pairs + std::min(pairs, slots) * (block_m - 1);
  return (worst + block_m - 1) / block_m * block_m;
}

std::string RouteDesc::describe() const {
  return fmt::format("{} of {} experts, {} of {} groups", rule.top_k, rule.experts, rule.top_groups, rule.groups);
}
std::string AlignDesc::describe() const {
  return fmt::format("{} experts, {} slots", experts, slots);
}
std::string WeightedSumDesc::describe() const {
  return fmt::format("dim {}", dim);
}

const RouteOp& route_op() {
  static constexpr const Implementation<RouteDesc, RouteArgs>* table[] = {&ref::route, &cuda::route};
  static const RouteOp op{"route", check_route, table};
  return op;
}

const AlignOp& align_op() {
  static constexpr const Implementation<AlignDesc, AlignArgs>* table[] = {&ref::align, &cuda::align};
  static const AlignOp op{"align", check_align, table};
  return op;
}

const WeightedSumOp& weighted_sum_op() {
  static constexpr const Implementation<WeightedSumDesc, WeightedSumArgs>* table[] = {
      &ref::weighted_sum, &simd::weighted_sum, &cuda::weighted_sum};
  static const WeightedSumOp op{"weighted_sum", check_sum, table};
  return op;
}

}  // namespace medley
