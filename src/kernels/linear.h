// linear: y = x W^T + bias. The order of additions of an output is a function of the weight's shape and dtype alone,
// never of the number of rows in x.
// headwise_linear: one matrix per head, for the absorbed projections of MLA.
// grouped_linear: the same over blocks of rows, each block with one expert's matrix (see moe.h for the alignment).
// gated_grouped_linear: grouped_linear and gated_activation in one, where a kernel can.
#pragma once

#include "kernels/op.h"
#include "kernels/pointwise.h"
#include "kernels/weight.h"

namespace medley {

struct LinearDesc {
  int64_t in = 0;              // k
  int64_t out = 0;             // n
  DType x = DType::f32;        // f32 or bf16: the arithmetic's input dtype
  DType weight = DType::bf16;  // as stored
  bool int8 = false;           // x is quantised (block_int8.h); of block weights only
  std::string describe() const;
};

struct LinearArgs {
  TensorView x;  // [tokens, in], rows may be strided
  WeightView weight;
  const float* bias = nullptr;  // [out]
  TensorView y;                 // f32 or bf16 [tokens, out], rows may be strided
  bool accumulate = false;      // y += instead of y = (f32 only): the residual stream
};

using LinearOp = Op<LinearDesc, LinearArgs>;
const LinearOp& linear_op();

struct HeadwiseLinearDesc : LinearDesc {
  int64_t heads = 0;
  std::string describe() const;
};

struct HeadwiseLinearArgs {
  TensorView x;       // f32 or bf16 [tokens, heads, in], tokens and heads may be strided
  WeightView weight;  // slots = heads matrices [out, in]
  TensorView y;       // f32 or bf16 [tokens, heads, out], tokens and heads may be strided
};

using HeadwiseLinearOp = Op<HeadwiseLinearDesc, HeadwiseLinearArgs>;
const HeadwiseLinearOp& headwise_linear_op();

struct GroupedLinearDesc : LinearDesc {
  int64_t slots = 0;
  std::string describe() const;
};

// Block b is the rows sorted_token_ids[b * block_m ... + block_m): pairs (token * top_k + k); a value >= num_pairs is
// padding and is skipped. Its matrix is slot expert_ids[b].
struct GroupedLinearArgs {
  TensorView x;  // [pairs / x_divisor, in]: pair p reads row p / x_divisor (top_k for the first GEMM, 1 for the second)
  int64_t x_divisor = 1;
  WeightView weight;                                // slots matrices
  const float* bias = nullptr;                      // [slots, out]
  TensorView y;                                     // f32 or bf16 [pairs, out], row = pair
  const int32_t* sorted_token_ids = nullptr;        // [num_tokens_post_padded]
  const int32_t* expert_ids = nullptr;              // [num_tokens_post_padded / block_m]
  const int32_t* num_tokens_post_padded = nullptr;  // on the op's device
  int64_t num_pairs = 0;
  int64_t block_m = 0;
};

using GroupedLinearOp = Op<GroupedLinearDesc, GroupedLinearArgs>;
const GroupedLinearOp& grouped_linear_op();

// Bit for bit what the two ops make one after the other with float32 between them: out is the gate's rows, then as many
// of up. There is a plain kernel for its meaning and one for Hopper; elsewhere (KernelSelector::find) the two ops
// serve.
struct GatedGroupedLinearDesc : GroupedLinearDesc {
  Activation activation = Activation::silu;
  DType y = DType::f32;
  std::string describe() const;
};

struct GatedGroupedLinearArgs : GroupedLinearArgs {  // y: [pairs, out / 2]
  Activation activation = Activation::silu;
};

using GatedGroupedLinearOp = Op<GatedGroupedLinearDesc, GatedGroupedLinearArgs>;
const GatedGroupedLinearOp& gated_grouped_linear_op();

}  // namespace medley
