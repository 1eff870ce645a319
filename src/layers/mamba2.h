// Mamba2 mixer (Dao and Gu 2024): one projection gives z, x, B, C and dt; x, B and C go through the convolution; heads
// with a scalar decay; a gated norm before out_proj. The state per request: the convolution's tail
// f32 [width - 1, channels + 2 groups x states], then the recurrent state f32 [heads, head_dim, states].
#pragma once

#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace medley {

struct Mamba2Spec {
  std::string prefix;  // "backbone.layers.0.mixer."
  int64_t hidden = 0, heads = 0, head_dim = 0, states = 0, groups = 0, conv_width = 0;
  bool conv_bias = true, proj_bias = false;
  float norm_eps = 1e-5f;
  float dt_min = 0, dt_max = 0;  // time_step_limit
};

class Mamba2 {
 public:
  Mamba2(LoadContext& context, const Mamba2Spec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  Mamba2Spec spec_;
  int64_t heads_ = 0, groups_ = 0;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear in_;  // z over x over B over C over dt
  std::vector<float> conv_weight_, conv_bias_, a_, d_, dt_bias_;
  RmsNorm norm_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<SsdScanArgs> scan_;
};

}  // namespace medley
