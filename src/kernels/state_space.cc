#include "kernels/state_space.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv;
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan;
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan;
}  // namespace ref
namespace simd {
extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv;
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan;
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan;
}  // namespace simd
namespace cuda {
extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv;
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan;
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan;
}  // namespace cuda

namespace {

void check_conv(const CausalConvArgs& a) {
  check_tensor("causal_conv1d", "x", a.x, {a.rows.num_tokens, -1}, {DType::f32});
  check_tensor("causal_conv1d", "y", a.y, {a.rows.num_tokens, a.x.size(1)}, {DType::f32});
}

void check_selective(const SelectiveScanArgs& a) {
  const int64_t tokens = a.rows.num_tokens, channels = a.x.size(1);
  check_tensor("selective_scan", "x", a.x, {tokens, -1}, {DType::f32});
  check_tensor("selective_scan", "dt", a.dt, {tokens, channels}, {DType::f32});
  check_tensor("selective_scan", "b", a.b, {tokens, -1}, {DType::f32});
  check_tensor("selective_scan", "c", a.c, {tokens, a.b.size(1)}, {DType::f32});
  if (a.z) check_tensor("selective_scan", "z", a.z, {tokens, channels}, {DType::f32});
  check_tensor("selective_scan", "y", a.y, {tokens, channels}, {DType::f32, DType::bf16});
}

void check_ssd(const SsdScanArgs& a) {
  const int64_t tokens = a.rows.num_tokens;
  check_tensor("ssd_scan", "x", a.x, {tokens, -1, -1}, {DType::f32});
  check_tensor("ssd_scan", "dt", a.dt, {tokens, a.x.size(1)}, {DType::f32});
  check_tensor("ssd_scan", "b", a.b, {tokens, -1, -1}, {DType::f32});
  check_tensor("ssd_scan", "c", a.c, {tokens, a.b.size(1), a.b.size(2)}, {DType::f32});
  check_tensor("ssd_scan", "y", a.y, {tokens, a.x.size(1), a.x.size(2)}, {DType::f32});
  if (a.x.size(1) % a.b.size(1) != 0)
    fail("[ssd_scan] {} heads do not divide over {} groups", a.x.size(1), a.b.size(1));
}

}  // namespace

std::string CausalConvDesc::describe() const {
  return fmt::format("{} channels, width {}", channels, width);
}
std::string SelectiveScanDesc::describe() const {
  return fmt::format("{} channels, {} states, y {}", channels, states, medley::name_of(y));
}
std::string SsdScanDesc::describe() const {
  return fmt::format("{} heads of {} x {}, {} groups", heads, head_dim, states, groups);
}

const CausalConvOp& causal_conv_op() {
  static constexpr const Implementation<CausalConvDesc, CausalConvArgs>* table[] = {
      &ref::causal_conv, &simd::causal_conv, &cuda::causal_conv};
  static const CausalConvOp op{"causal_conv1d", check_conv, table};
  return op;
}

const SelectiveScanOp& selective_scan_op() {
  static constexpr const Implementation<SelectiveScanDesc, SelectiveScanArgs>* table[] = {
      &ref::selective_scan, &simd::selective_scan, &cuda::selective_scan};
  static const SelectiveScanOp op{"selective_scan", check_selective, table};
  return op;
}

const SsdScanOp& ssd_scan_op() {
  static constexpr const Implementation<SsdScanDesc, SsdScanArgs>* table[] = {&ref::ssd_scan, &simd::ssd_scan,
                                                                              &cuda::ssd_scan};
  static const SsdScanOp op{"ssd_scan", check_ssd, table};
  return op;
}

}  // namespace medley
