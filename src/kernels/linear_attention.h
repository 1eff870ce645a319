// Linear attention with a matrix-valued state per head, S [k_dim, v_dim], in token order. A chunk may end anywhere;
// every op reads the state a row had and writes the state after its last new token.
#pragma once

#include "kernels/op.h"
#include "kernels/rows.h"

namespace medley {

// gated_delta_scan (Gated DeltaNet, Yang et al. 2024, equation 10; with a decay per key channel Kimi Delta Attention,
// Kimi Team 2025, equation 1): per value head h, whose key head is h / (heads / key_heads),
//   k = k / sqrt(sum(k^2) + l2_eps), q likewise, times `scale`
//   S = exp(a * softplus(dt + dt_bias)) * S                  the decay, per head or per key channel
//   S = S + k (sigmoid(beta) * (v - S^T k))^T
//   y = S^T q
// The state is f32 [heads, k_dim, v_dim].
struct GatedDeltaDesc {
  int64_t heads = 0, key_heads = 0, k_dim = 0, v_dim = 0;
  bool decay_per_channel = false;
  std::string describe() const;
};
struct GatedDeltaArgs {
  TensorView q;                    // f32 [tokens, key_heads, k_dim], tokens may be strided
  TensorView k;                    // f32 [tokens, key_heads, k_dim], tokens may be strided
  TensorView v;                    // f32 [tokens, heads, v_dim], tokens may be strided
  TensorView dt;                   // f32 [tokens, heads, 1 or k_dim], tokens may be strided
  TensorView beta;                 // f32 [tokens, heads], before the sigmoid, tokens may be strided
  const float* a = nullptr;        // [heads]: -exp(A_log)
  const float* dt_bias = nullptr;  // [heads, 1 or k_dim]
  float scale = 1;
  float l2_eps = 1e-6f;
  RaggedRows rows;
  StateSlots state;
  TensorView y;               // f32 [tokens, heads, v_dim]
  bool reproducible = false;  // in token order: the same bits however a row is cut into steps
};
using GatedDeltaOp = Op<GatedDeltaDesc, GatedDeltaArgs>;
const GatedDeltaOp& gated_delta_op();

// lightning_scan (Lightning Attention-2, Qin et al. 2024, equation 4): per head h with a constant decay
//   S = decay[h] * S + k v^T;  y = S^T q
// The state is f32 [heads, k_dim, v_dim].
//
// With tables, the same by blocks of positions (Lightning Attention-2, algorithm 1), for checkpoints that store the
// powers of the decay in a dtype that rounds them. At place i of a block that began with S:
//   y = query[i] S^T q + sum over j <= i of diagonal[i, j] (q . k_j) v_j
//   the next block begins with block_decay * S + sum over j of key[j] k_j v_j^T
// The state is then f32 per head: S [k_dim, v_dim], the block's k [block, k_dim], its v [block, v_dim].
struct LightningDesc {
  int64_t heads = 0, k_dim = 0, v_dim = 0;
  int64_t block = 0;  // with tables
  std::string describe() const;
};
struct LightningTables {
  int64_t block = 0;                   // 0: none
  const float* query = nullptr;        // [heads, block]
  const float* key = nullptr;          // [heads, block]
  const float* diagonal = nullptr;     // [heads, block, block]
  const float* block_decay = nullptr;  // [heads]
};
struct LightningArgs {
  TensorView q;                  // f32 [tokens, heads, k_dim], tokens and heads may be strided
  TensorView k;                  // f32 [tokens, heads, k_dim], tokens and heads may be strided
  TensorView v;                  // f32 [tokens, heads, v_dim], tokens and heads may be strided
  const float* decay = nullptr;  // [heads]; without tables
  LightningTables tables;
  RaggedRows rows;
  StateSlots state;
  TensorView y;  // f32 [tokens, heads, v_dim]
};
using LightningOp = Op<LightningDesc, LightningArgs>;
const LightningOp& lightning_op();
inline int64_t lightning_state_bytes(int64_t heads, int64_t k_dim, int64_t v_dim, int64_t block) {
  return heads * (k_dim * v_dim + block * (k_dim + v_dim)) * 4;
}

}  // namespace medley
