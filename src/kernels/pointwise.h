// The small ops between matrix products: embedding, gated activation, row gathering, addition, scaling.
#pragma once

#include "kernels/op.h"
#include "kernels/weight.h"

namespace medley {

enum class Activation : uint8_t {
  silu,
  gelu_tanh,
  gelu,
  relu,
  relu2,
  clamped_swiglu,  // gpt-oss, gated only; g = min(gate, limit), u = up within +-limit: (u + 1) * g * sigmoid(alpha g)
};
constexpr float swiglu_limit = 7, swiglu_alpha = 1.702f;  // of clamped_swiglu
std::string_view name_of(Activation activation);

// embedding: y[t] = scale * table[ids[t] - first_id]; an id outside the table's rows gives zeros (vocabulary shards).
struct EmbeddingDesc {
  int64_t dim = 0;
  DType weight = DType::bf16;
  std::string describe() const;
};
struct EmbeddingArgs {
  TensorView ids;    // i32 [tokens]
  WeightView table;  // [vocab shard, dim], row-major; of a block type in any layout
  int64_t first_id = 0;
  float scale = 1;
  TensorView y;  // f32 [tokens, dim]
};
using EmbeddingOp = Op<EmbeddingDesc, EmbeddingArgs>;
const EmbeddingOp& embedding_op();

// gated_activation: y = act(x[:, :width]) * x[:, width:], or y = act(x) when not gated.
struct GatedActivationDesc {
  int64_t width = 0;
  Activation activation = Activation::silu;
  bool gated = true;
  DType y = DType::f32;
  std::string describe() const;
};
struct GatedActivationArgs {
  TensorView x;  // f32 [tokens, 2 * width] (or [tokens, width])
  Activation activation = Activation::silu;
  bool gated = true;
  TensorView y;  // f32 or bf16 [tokens, width]
};
using GatedActivationOp = Op<GatedActivationDesc, GatedActivationArgs>;
const GatedActivationOp& gated_activation_op();

// convert_rows: y[i] = x[rows[i]] (or x[i] without rows) in y's dtype.
struct ConvertRowsDesc {
  DType x = DType::f32;
  DType y = DType::f32;
  std::string describe() const;
};
struct ConvertRowsArgs {
  TensorView x;     // f32 or bf16 [tokens, dim], rows may be strided
  TensorView rows;  // i32 [n]; optional
  TensorView y;     // f32 or bf16 [n, dim], rows may be strided
};
using ConvertRowsOp = Op<ConvertRowsDesc, ConvertRowsArgs>;
const ConvertRowsOp& convert_rows_op();

// add: y += scale * x, f32.
struct AddDesc {
  std::string describe() const;
};
struct AddArgs {
  TensorView x;  // f32 [tokens, dim]
  float scale = 1;
  TensorView y;  // f32 [tokens, dim]
};
using AddOp = Op<AddDesc, AddArgs>;
const AddOp& add_op();

// scale: x = scale * x, and then softcap * tanh(x / softcap) when there is a cap; f32, in place (logits, multipliers).
struct ScaleDesc {
  bool softcap = false;
  std::string describe() const;
};
struct ScaleArgs {
  TensorView x;  // f32 [tokens, dim], rows may be strided
  float scale = 1;
  float softcap = 0;  // 0: none
};
using ScaleOp = Op<ScaleDesc, ScaleArgs>;
const ScaleOp& scale_op();

}  // namespace medley
