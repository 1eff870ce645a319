#include "kernels/linear_attention.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta;
extern const Implementation<LightningDesc, LightningArgs> lightning;
}  // namespace ref
namespace cuda {
extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta;
extern const Implementation<LightningDesc, LightningArgs> lightning;
}  // namespace cuda

namespace {

void check_delta(const GatedDeltaArgs& a) {
  constexpr const char* op = "gated_delta_scan";
  const int64_t tokens = a.rows.num_tokens, heads = a.v.size(1), k_dim = a.k.size(2);
  check_tensor(op, "k", a.k, {tokens, -1, -1}, {DType::f32});
  check_tensor(op, "q", a.q, {tokens, a.k.size(1), k_dim}, {DType::f32});
  check_tensor(op, "v", a.v, {tokens, -1, -1}, {DType::f32});
  check_tensor(op, "dt", a.dt, {tokens, heads, a.dt.size(2) == 1 ? 1 : k_dim}, {DType::f32});
  check_tensor(op, "beta", a.beta, {tokens, heads}, {DType::f32});
  check_tensor(op, "y", a.y, {tokens, heads, a.v.size(2)}, {DType::f32});
  if (heads % a.k.size(1) != 0) fail("[{}] {} heads do not divide over {} key heads", op, heads, a.k.size(1));
}

void check_lightning(const LightningArgs& a) {
  constexpr const char* op = "lightning_scan";
  const int64_t tokens = a.rows.num_tokens, heads = a.v.size(1);
  check_tensor(op, "v", a.v, {tokens, -1, -1}, {DType::f32});
  check_tensor(op, "k", a.k, {tokens, heads, -1}, {DType::f32});
  check_tensor(op, "q", a.q, {tokens, heads, a.k.size(2)}, {DType::f32});
  check_tensor(op, "y", a.y, {tokens, heads, a.v.size(2)}, {DType::f32});
}

}  // namespace

std::string GatedDeltaDesc::describe() const {
  return fmt::format("{} heads of {} x {}, {} key heads, decay per {}", heads, k_dim, v_dim, key_heads,
                     decay_per_channel ? "channel" : "head");
}
std::string LightningDesc::describe() const {
  return fmt::format("{} heads of {} x {}{}", heads, k_dim, v_dim,
                     block > 0 ? fmt::format(", blocks of {}", block) : "");
}

const GatedDeltaOp& gated_delta_op() {
  static constexpr const Implementation<GatedDeltaDesc, GatedDeltaArgs>* table[] = {&ref::gated_delta,
                                                                                    &cuda::gated_delta};
  static const GatedDeltaOp op{"gated_delta_scan", check_delta, table};
  return op;
}

const LightningOp& lightning_op() {
  static constexpr const Implementation<LightningDesc, LightningArgs>* table[] = {&ref::lightning, &cuda::lightning};
  static const LightningOp op{"lightning_scan", check_lightning, table};
  return op;
}

}  // namespace medley
