// Rotary position embedding (Su et al. 2021). The angles are computed once a step and shared by the layers.
#pragma once

#include "kernels/op.h"

namespace medley {

// rope_angles: table[t] = (cos(positions[t] * inv_freq[i]) * factor for all i, then the sines).
struct RopeAnglesDesc {
  int64_t half = 0;  // rotary dimensions / 2
  std::string describe() const;
};
struct RopeAnglesArgs {
  TensorView positions;             // i32 [tokens]
  const float* inv_freq = nullptr;  // [half]
  float factor = 1;                 // YaRN's attention factor
  TensorView table;                 // f32 [tokens, 2 * half]
};
using RopeAnglesOp = Op<RopeAnglesDesc, RopeAnglesArgs>;
const RopeAnglesOp& rope_angles_op();

// rope: rotates, in place, the first 2 * half elements of each head of x.
struct RopeDesc {
  int64_t half = 0;
  bool interleaved = false;
  std::string describe() const;
};
struct RopeArgs {
  TensorView x;      // f32 [tokens, heads, dim >= 2 * half], any strides with the last 1
  TensorView table;  // f32 [tokens, 2 * half]
  // false: element i pairs with i + half (Llama). true: element 2i pairs with 2i + 1 (DeepSeek); the rotated pair is
  // left where it was, which changes q and k alike and so no score.
  bool interleaved = false;
};
using RopeOp = Op<RopeDesc, RopeArgs>;
const RopeOp& rope_op();

}  // namespace medley
