// State-space ops with a state per request: the causal convolution and the two selective scans. A chunk may end
// anywhere; every op reads the state a row had and writes the state after its last new token.
#pragma once

#include "kernels/op.h"
#include "kernels/rows.h"

namespace medley {

// causal_conv1d: y[t, c] = act(bias[c] + sum_j weight[c, j] * x[t - (width - 1) + j, c]), depthwise. The state is the
// last width - 1 inputs, f32 [width - 1, channels], oldest first.
struct CausalConvDesc {
  int64_t channels = 0;
  int64_t width = 0;
  std::string describe() const;
};
struct CausalConvArgs {
  TensorView x;                   // f32 [tokens, channels], rows may be strided
  const float* weight = nullptr;  // [channels, width]
  const float* bias = nullptr;    // [channels]; optional
  int64_t width = 0;
  bool silu = true;
  RaggedRows rows;
  StateSlots state;
  TensorView y;  // f32 [tokens, channels]
};
using CausalConvOp = Op<CausalConvDesc, CausalConvArgs>;
const CausalConvOp& causal_conv_op();
inline int64_t conv_state_bytes(int64_t channels, int64_t width) {
  return channels * (width - 1) * 4;
}

// selective_scan (Mamba, Gu and Dao 2023, algorithm 2): per channel d and state n
//   dt = softplus(dt + dt_bias);  s = exp(dt * A) * s + dt * B * x;  y = (sum_n C * s + D * x) * silu(z)
// The state is f32 [channels, states].
struct SelectiveScanDesc {
  int64_t channels = 0;
  int64_t states = 0;
  DType y = DType::f32;
  std::string describe() const;
};
struct SelectiveScanArgs {
  TensorView x;                    // f32 [tokens, channels]
  TensorView dt;                   // f32 [tokens, channels]
  TensorView b;                    // f32 [tokens, states], rows may be strided
  TensorView c;                    // f32 [tokens, states], rows may be strided
  TensorView z;                    // f32 [tokens, channels], rows may be strided; optional
  const float* a = nullptr;        // [channels, states]: -exp(A_log)
  const float* d = nullptr;        // [channels]
  const float* dt_bias = nullptr;  // [channels]; optional
  RaggedRows rows;
  StateSlots state;
  TensorView y;  // f32 or bf16 [tokens, channels]
};
using SelectiveScanOp = Op<SelectiveScanDesc, SelectiveScanArgs>;
const SelectiveScanOp& selective_scan_op();

// ssd_scan (Mamba2, Dao and Gu 2024, section 5): per head h with scalar decay
//   dt = clamp(softplus(dt + dt_bias), dt_min, dt_max);  S = exp(dt * A) * S + (dt * x) B^T;  y = S C + D * x
// The state is f32 [heads, head_dim, states].
struct SsdScanDesc {
  int64_t heads = 0, head_dim = 0, states = 0, groups = 0;
  std::string describe() const;
};
struct SsdScanArgs {
  TensorView x;                    // f32 [tokens, heads, head_dim], tokens may be strided
  TensorView dt;                   // f32 [tokens, heads], tokens may be strided
  TensorView b;                    // f32 [tokens, groups, states], tokens may be strided
  TensorView c;                    // f32 [tokens, groups, states], tokens may be strided
  const float* a = nullptr;        // [heads]: -exp(A_log)
  const float* d = nullptr;        // [heads]
  const float* dt_bias = nullptr;  // [heads]
  float dt_min = 0, dt_max = 0;    // clamp of dt after the softplus
  RaggedRows rows;
  StateSlots state;
  TensorView y;               // f32 [tokens, heads, head_dim]
  bool reproducible = false;  // in token order: the same bits however a row is cut into steps
};
using SsdScanOp = Op<SsdScanDesc, SsdScanArgs>;
const SsdScanOp& ssd_scan_op();

}  // namespace medley
