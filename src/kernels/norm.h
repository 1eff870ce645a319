// rms_norm: y = w * x / sqrt(mean(x^2) + eps), in float32, over groups of the last dimension, with an optional residual
// addition before and an optional gate. (Zhang and Sennrich 2019; the gate as in Mamba2's and gated delta net's norms.)
#pragma once

#include "kernels/op.h"

namespace medley {

enum class NormGate : uint8_t {
  none,
  before,         // normalises x * silu(gate)  (Mamba2)
  after,          // multiplies the normalised x by silu(gate)  (gated delta net)
  after_sigmoid,  // multiplies it by sigmoid(gate)  (Kimi Delta Attention, lightning attention)
};

struct RmsNormDesc {
  int64_t dim = 0;
  DType y = DType::f32;
  std::string describe() const;
};

struct RmsNormArgs {
  TensorView x;                   // f32 [tokens, dim], rows may be strided
  const float* weight = nullptr;  // [dim], or [group] when shared by the groups; null: all ones
  bool weight_per_group = false;  // weight is [group] (per-head norms of q and k)
  int64_t group = 0;              // elements normalised together; 0: dim
  float eps = 0;
  float weight_offset = 0;  // added to the weight (1 for zero-centred norms)
  TensorView delta;         // f32 [tokens, dim]: x += delta first, written back to x; optional
  NormGate gate_order = NormGate::none;
  TensorView gate;  // f32 [tokens, dim], rows may be strided
  TensorView y;     // f32 or bf16 [tokens, dim], rows may be strided; may be x itself
};

using RmsNormOp = Op<RmsNormDesc, RmsNormArgs>;
const RmsNormOp& rms_norm_op();

// layer_norm: y = w * (x - mean(x)) / sqrt(variance(x) + eps) + b, in float32 (Ba et al. 2016).
struct LayerNormDesc {
  int64_t dim = 0;
  std::string describe() const;
};
struct LayerNormArgs {
  TensorView x;                   // f32 [tokens, dim], rows may be strided
  const float* weight = nullptr;  // [dim]
  const float* bias = nullptr;    // [dim]
  float eps = 0;
  TensorView y;  // f32 [tokens, dim], rows may be strided; may be x itself
};
using LayerNormOp = Op<LayerNormDesc, LayerNormArgs>;
const LayerNormOp& layer_norm_op();

}  // namespace medley
