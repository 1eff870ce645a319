#include "kernels/linear.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<LinearDesc, LinearArgs> linear, linear_int8;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear, grouped_linear_int8;
extern const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs> gated_grouped_linear;
}  // namespace ref
namespace simd {
extern const Implementation<LinearDesc, LinearArgs> linear, linear_int8;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear, grouped_linear_int8;
}  // namespace simd
namespace avx512 {
extern const Implementation<LinearDesc, LinearArgs> linear, linear_int8;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear, grouped_linear_int8;
}  // namespace avx512
namespace cuda {
extern const Implementation<LinearDesc, LinearArgs> linear;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear;
}  // namespace cuda
namespace sm90 {
extern const Implementation<LinearDesc, LinearArgs> linear;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear;
extern const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs> gated_grouped_linear;
}  // namespace sm90

namespace {

void check(const LinearArgs& a) {
  check_tensor("linear", "x", a.x, {-1, a.weight.k}, {DType::f32, DType::bf16});
  check_tensor("linear", "y", a.y, {a.x.size(0), a.weight.n}, {DType::f32, DType::bf16});
  if (a.accumulate && a.y.dtype != DType::f32) fail("[linear] accumulates into f32 only");
}

void check_headwise(const HeadwiseLinearArgs& a) {
  check_tensor("headwise_linear", "x", a.x, {-1, a.weight.slots, a.weight.k}, {DType::f32, DType::bf16});
  check_tensor("headwise_linear", "y", a.y, {a.x.size(0), a.weight.slots, a.weight.n}, {DType::f32, DType::bf16});
}

void check_grouped(const GroupedLinearArgs& a) {
  check_tensor("grouped_linear", "x", a.x, {a.num_pairs / a.x_divisor, a.weight.k}, {DType::f32, DType::bf16});
  check_tensor("grouped_linear", "y", a.y, {a.num_pairs, a.weight.n}, {DType::f32, DType::bf16});
}

void check_gated(const GatedGroupedLinearArgs& a) {
  check_tensor("gated_grouped_linear", "x", a.x, {a.num_pairs / a.x_divisor, a.weight.k}, {DType::f32, DType::bf16});
  check_tensor("gated_grouped_linear", "y", a.y, {a.num_pairs, a.weight.n / 2}, {DType::f32, DType::bf16});
  if (a.weight.n % 2 != 0) fail("[gated_grouped_linear] weight has {} rows, want those of gate and up", a.weight.n);
}

}  // namespace

std::string LinearDesc::describe() const {
  return fmt::format("x {}{}, weight {} [{}, {}]", medley::name_of(x), int8 ? " as int8" : "", medley::name_of(weight),
                     out, in);
}

std::string HeadwiseLinearDesc::describe() const {
  return fmt::format("{} heads x {}", heads, LinearDesc::describe());
}

std::string GroupedLinearDesc::describe() const {
  return fmt::format("{} x {}", slots, LinearDesc::describe());
}

std::string GatedGroupedLinearDesc::describe() const {
  return fmt::format("{}, {}", GroupedLinearDesc::describe(), medley::name_of(activation));
}

const LinearOp& linear_op() {
  static constexpr const Implementation<LinearDesc, LinearArgs>* table[] = {
      &ref::linear,  &simd::linear,     &avx512::linear,    &cuda::linear,
      &sm90::linear, &ref::linear_int8, &simd::linear_int8, &avx512::linear_int8};
  static const LinearOp op{"linear", check, table};
  return op;
}

const HeadwiseLinearOp& headwise_linear_op() {
  static constexpr const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs>* table[] = {
      &ref::headwise_linear, &simd::headwise_linear, &avx512::headwise_linear, &cuda::headwise_linear,
      &sm90::headwise_linear};
  static const HeadwiseLinearOp op{"headwise_linear", check_headwise, table};
  return op;
}

const GroupedLinearOp& grouped_linear_op() {
  static constexpr const Implementation<GroupedLinearDesc, GroupedLinearArgs>* table[] = {
      &ref::grouped_linear,  &simd::grouped_linear,     &avx512::grouped_linear,    &cuda::grouped_linear,
      &sm90::grouped_linear, &ref::grouped_linear_int8, &simd::grouped_linear_int8, &avx512::grouped_linear_int8};
  static const GroupedLinearOp op{"grouped_linear", check_grouped, table};
  return op;
}

const GatedGroupedLinearOp& gated_grouped_linear_op() {
  static constexpr const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs>* table[] = {
      &ref::gated_grouped_linear, &sm90::gated_grouped_linear};
  static const GatedGroupedLinearOp op{"gated_grouped_linear", check_gated, table};
  return op;
}

}  // namespace medley
