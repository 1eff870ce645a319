#include "kernels/gate.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<GateDesc, GateArgs> gate;
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns;
}  // namespace ref
namespace cuda {
extern const Implementation<GateDesc, GateArgs> gate;
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns;
}  // namespace cuda

namespace {

void check_gate(const GateArgs& a) {
  check_tensor("gate", "x", a.x, {-1, -1}, {DType::f32});
  check_tensor("gate", "gate", a.gate, {a.x.size(0), a.x.size(1)}, {DType::f32});
  check_tensor("gate", "y", a.y, {a.x.size(0), a.x.size(1)}, {DType::f32, DType::bf16});
}

void check_scale(const ScaleColumnsArgs& a) {
  check_tensor("scale_columns", "y", a.y, {-1, -1}, {DType::f32});
}

}  // namespace

std::string_view name_of(Gate gate) {
  switch (gate) {
    case Gate::identity: return "identity";
    case Gate::sigmoid: return "sigmoid";
    case Gate::silu: return "silu";
  }
  return "?";
}

std::string GateDesc::describe() const {
  return fmt::format("{}, y {}", medley::name_of(act), medley::name_of(y));
}

std::string ScaleColumnsDesc::describe() const {
  return fmt::format("dim {}", dim);
}

const GateOp& gate_op() {
  static constexpr const Implementation<GateDesc, GateArgs>* table[] = {&ref::gate, &cuda::gate};
  static const GateOp op{"gate", check_gate, table};
  return op;
}

const ScaleColumnsOp& scale_columns_op() {
  static constexpr const Implementation<ScaleColumnsDesc, ScaleColumnsArgs>* table[] = {&ref::scale_columns,
                                                                                        &cuda::scale_columns};
  static const ScaleColumnsOp op{"scale_columns", check_scale, table};
  return op;
}

}  // namespace medley
