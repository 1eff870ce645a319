#include "kernels/norm.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm;
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm;
}  // namespace ref
namespace simd {
extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm;
}  // namespace simd
namespace cuda {
extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm;
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm;
}  // namespace cuda

namespace {

void check(const RmsNormArgs& a) {
  const int64_t tokens = a.x.size(0), dim = a.x.size(1);
  check_tensor("rms_norm", "x", a.x, {-1, -1}, {DType::f32});
  check_tensor("rms_norm", "y", a.y, {tokens, dim}, {DType::f32, DType::bf16});
  if (a.delta) check_tensor("rms_norm", "delta", a.delta, {tokens, dim}, {DType::f32});
  if (a.gate_order != NormGate::none) check_tensor("rms_norm", "gate", a.gate, {tokens, dim}, {DType::f32});
  if (a.group < 0 || (a.group > 0 && dim % a.group != 0))
    fail("[rms_norm] groups of {} elements do not divide dim {}", a.group, dim);
}

void check_layer_norm(const LayerNormArgs& a) {
  check_tensor("layer_norm", "x", a.x, {-1, -1}, {DType::f32});
  check_tensor("layer_norm", "y", a.y, {a.x.size(0), a.x.size(1)}, {DType::f32});
}

}  // namespace

std::string LayerNormDesc::describe() const {
  return fmt::format("dim {}", dim);
}

std::string RmsNormDesc::describe() const {
  return fmt::format("dim {}, y {}", dim, medley::name_of(y));
}

const RmsNormOp& rms_norm_op() {
  static constexpr const Implementation<RmsNormDesc, RmsNormArgs>* table[] = {&ref::rms_norm, &simd::rms_norm,
                                                                              &cuda::rms_norm};
  static const RmsNormOp op{"rms_norm", check, table};
  return op;
}

const LayerNormOp& layer_norm_op() {
  static constexpr const Implementation<LayerNormDesc, LayerNormArgs>* table[] = {&ref::layer_norm, &cuda::layer_norm};
  static const LayerNormOp op{"layer_norm", check_layer_norm, table};
  return op;
}

}  // namespace medley
