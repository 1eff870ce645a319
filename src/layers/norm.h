// RMS norm with its weight: of the residual stream (with the addition of what the last block made), of heads, and
// gated.
#pragma once

#include "kernels/norm.h"
#include "layers/parameter.h"

namespace medley {

struct NormRule {
  float eps = 1e-6f;
  float weight_offset = 0;  // added to the stored weight: 1 where checkpoints hold it zero-centred
  int64_t group = 0;        // elements normalised together; 0: all
};

class RmsNorm {
 public:
  RmsNorm() = default;
  // An empty name: no weight.
  RmsNorm(LoadContext& context, const std::string& name, int64_t dim, NormRule rule, const Slice& slice = {});

  // y = norm(x). x f32 [tokens, dim].
  void operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const { run({.x = x, .y = y}, exec); }
  // x += delta, then y = norm(x). Without a delta (an empty view) the same as above.
  void add(const TensorView& x, const TensorView& delta, const TensorView& y, ExecContext& exec) const {
    run({.x = x, .delta = delta, .y = y}, exec);
  }
  // Every head of x [tokens, heads * dim] on its own, with the one weight; in place.
  void heads(const TensorView& x, ExecContext& exec) const {
    run({.x = x, .weight_per_group = true, .group = dim_, .y = x}, exec);
  }
  // The same with a gate, before or after. x wider than the weight: every head on its own.
  void gated(const TensorView& x, const TensorView& gate, NormGate order, const TensorView& y,
             ExecContext& exec) const {
    const bool by_head = x.size(1) != dim_;
    run({.x = x,
         .weight_per_group = by_head,
         .group = by_head ? dim_ : rule_.group,
         .gate_order = order,
         .gate = gate,
         .y = y},
        exec);
  }

 private:
  void run(RmsNormArgs args, ExecContext& exec) const;

  Kernel<RmsNormArgs> f32_, act_;  // by the dtype of y
  Parameter weight_;
  int64_t dim_ = 0;
  NormRule rule_;
};

}  // namespace medley
