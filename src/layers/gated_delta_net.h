// Gated delta net (Yang et al. 2024) as Qwen3-Next and Qwen3.5 use it: q, k and v through one causal convolution, the
// gated delta rule with a decay per value head, a norm of each head times silu(z). The state per request: the
// convolution's tail f32 [width - 1, 2 key_heads x k_dim + heads x v_dim], then f32 [heads, k_dim, v_dim].
#pragma once

#include "kernels/linear_attention.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

namespace medley {

// How the stored input projections lie.
enum class DeltaNetLayout : uint8_t {
  by_key_head,  // in_proj_qkvz and in_proj_ba: key head by key head its q, k, v, z; its b, a (Qwen3-Next)
  separate,     // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a (Qwen3.5)
};

struct GatedDeltaNetSpec {
  std::string prefix;  // "model.layers.0.linear_attn."
  int64_t hidden = 0, heads = 0, key_heads = 0, k_dim = 0, v_dim = 0, conv_width = 0;
  DeltaNetLayout layout = DeltaNetLayout::separate;
  float norm_eps = 1e-6f;

  GatedDeltaNetSpec at(const std::string& place) const {
    GatedDeltaNetSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class GatedDeltaNet {
 public:
  GatedDeltaNet(LoadContext& context, const GatedDeltaNetSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  std::vector<LinearPart> input_parts(const HeadRange& mine) const;

  GatedDeltaNetSpec spec_;
  int64_t heads_ = 0, key_heads_ = 0;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear in_;  // q over k over v over z over b over a
  Parameter conv_weight_, a_, dt_bias_;
  RmsNorm norm_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<GatedDeltaArgs> scan_;
};

}  // namespace medley
