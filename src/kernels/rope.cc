#include "kernels/rope.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<RopeAnglesDesc, RopeAnglesArgs> rope_angles;
extern const Implementation<RopeDesc, RopeArgs> rope;
}  // namespace ref
namespace simd {
extern const Implementation<RopeDesc, RopeArgs> rope;
}  // namespace simd
namespace cuda {
extern const Implementation<RopeAnglesDesc, RopeAnglesArgs> rope_angles;
extern const Implementation<RopeDesc, RopeArgs> rope;
}  // namespace cuda

namespace {

void check_angles(const RopeAnglesArgs& a) {
  check_tensor("rope_angles", "positions", a.positions, {-1}, {DType::i32});
  check_tensor("rope_angles", "table", a.table, {a.positions.size(0), -1}, {DType::f32});
}

void check_rope(const RopeArgs& a) {
  check_tensor("rope", "x", a.x, {-1, -1, -1}, {DType::f32});
  check_tensor("rope", "table", a.table, {a.x.size(0), -1}, {DType::f32});
  if (a.table.size(1) > a.x.size(2) || a.table.size(1) % 2 != 0)
    fail("[rope] {} rotary dimensions do not fit heads of {}", a.table.size(1), a.x.size(2));
}

}  // namespace

std::string RopeAnglesDesc::describe() const {
  return fmt::format("half {}", half);
}
std::string RopeDesc::describe() const {
  return fmt::format("half {}{}", half, interleaved ? ", interleaved" : "");
}

const RopeAnglesOp& rope_angles_op() {
  static constexpr const Implementation<RopeAnglesDesc, RopeAnglesArgs>* table[] = {&ref::rope_angles,
                                                                                    &cuda::rope_angles};
  static const RopeAnglesOp op{"rope_angles", check_angles, table};
  return op;
}

const RopeOp& rope_op() {
  static constexpr const Implementation<RopeDesc, RopeArgs>* table[] = {&ref::rope, &simd::rope, &cuda::rope};
  static const RopeOp op{"rope", check_rope, table};
  return op;
}

}  // namespace medley
