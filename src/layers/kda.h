// Kimi Delta Attention (Kimi Team 2025): q, k and v each through a causal convolution, the gated delta rule with a
// decay per key channel from a low-rank projection, a norm of each head times sigmoid of a low-rank gate. The state per
// request: the convolution's tail f32 [width - 1, 3 heads x dim], then f32 [heads, dim, dim].
#pragma once

#include "kernels/linear_attention.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

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
  KdaSpec spec_;
  int64_t heads_ = 0;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear in_;            // q over k over v over beta
  Linear low_;                         // f_a over g_a, on every rank
  ColumnParallelLinear decay_, gate_;  // f_b and g_b
  Parameter conv_weight_, a_, dt_bias_;
  RmsNorm norm_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<GatedDeltaArgs> scan_;
};

}  // namespace medley
