// Kimi Delta Attention (Kimi Team 2025): the gated delta rule with a decay per key channel from a low-rank projection,
// the norm of each head times sigmoid of a low-rank gate.
#pragma once

#include "layers/delta_rule.h"

namespace medley {

struct KdaSpec {
  std::string prefix;  // "model.layers.0.self_attn."
  int64_t hidden = 0, heads = 0, dim = 0, conv_width = 0;
  float norm_eps = 1e-5f;

  KdaSpec at(const std::string& place) const {
    KdaSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class Kda {
 public:
  Kda(LoadContext& context, const KdaSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  DType dtype_;
  DeltaRuleSizes sizes_;
  ColumnParallelLinear in_;            // q over k over v over beta
  Linear low_;                         // f_a over g_a, on every rank
  ColumnParallelLinear decay_, gate_;  // f_b and g_b
  DeltaRule rule_;
};

}  // namespace medley
