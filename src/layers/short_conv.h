// Gated short convolution (LFM2, Liquid AI 2025): B, C and x from one projection; out_proj(C * conv(B * x)). The state
// per request is the convolution's tail f32 [width - 1, hidden].
#pragma once

#include "kernels/gate.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/parameter.h"

namespace medley {

struct ShortConvSpec {
  std::string prefix;  // "model.layers.0.conv."
  int64_t hidden = 0, width = 0;
  bool bias = false;  // of the projections and the convolution

  ShortConvSpec at(const std::string& place) const {
    ShortConvSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class ShortConv {
 public:
  ShortConv(LoadContext& context, const ShortConvSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  int64_t width_, channels_;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear in_;  // B over C over x
  Parameter conv_weight_, conv_bias_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<GateArgs> f32_gate_, gate_;  // by the dtype of the product
};

}  // namespace medley
