// Element-wise products between the rows of two projections.
#pragma once

#include "kernels/op.h"

namespace medley {

enum class Gate : uint8_t { identity, sigmoid, silu };
std::string_view name_of(Gate gate);

// gate: y = x * act(gate). (LFM2's short convolution, the output gates of attention.)
struct GateDesc {
  Gate act = Gate::identity;
  DType y = DType::f32;
  std::string describe() const;
};
struct GateArgs {
  TensorView x;     // f32 [tokens, dim], rows may be strided
  TensorView gate;  // f32 [tokens, dim], rows may be strided
  Gate act = Gate::identity;
  TensorView y;  // f32 or bf16 [tokens, dim], rows may be strided; may be x itself
};
using GateOp = Op<GateDesc, GateArgs>;
const GateOp& gate_op();

// scale_columns: y[t, c] *= scale[c]. (The multipliers of maximal-update parametrisation, which belong to a
// projection's outputs and must not be rounded into its weight.)
struct ScaleColumnsDesc {
  int64_t dim = 0;
  std::string describe() const;
};
struct ScaleColumnsArgs {
  const float* scale = nullptr;  // [dim]
  TensorView y;                  // f32 [tokens, dim], rows may be strided
};
using ScaleColumnsOp = Op<ScaleColumnsDesc, ScaleColumnsArgs>;
const ScaleColumnsOp& scale_columns_op();

}  // namespace medley
