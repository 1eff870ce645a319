// Mamba2 mixer (Dao and Gu 2024): one projection gives z, x, B, C and dt; x, B and C go through the convolution; heads
// with a scalar decay; a gated norm before out_proj. The state per request: the convolution's tail
// f32 [width - 1, channels + 2 groups x states], then the recurrent state f32 [heads, head_dim, states].
#pragma once

#include "kernels/gate.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

namespace medley {

// What happens between the scan and out_proj.
enum class Mamba2Norm : uint8_t {
  gate_first,  // norm(x * silu(z))
  norm_first,  // norm(x) * silu(z)
  none,        // x * silu(z)
};

// Factors of the projections' outputs (Falcon-H1).
struct Mamba2Multipliers {
  float z = 1, x = 1, b = 1, c = 1, dt = 1, out = 1;
};

struct Mamba2Spec {
  std::string prefix;  // "backbone.layers.0.mixer."
  int64_t hidden = 0, heads = 0, head_dim = 0, states = 0, groups = 0, conv_width = 0;
  bool conv_bias = true, proj_bias = false, out_bias = false;
  float norm_eps = 1e-5f;
  Mamba2Norm norm = Mamba2Norm::gate_first;
  bool norm_by_group = false;    // each group's channels are normalised apart
  float dt_min = 0, dt_max = 0;  // time_step_limit
  Mamba2Multipliers multipliers;

  Mamba2Spec at(const std::string& place) const {
    Mamba2Spec copy = *this;
    copy.prefix = place;
    return copy;
  }
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
  bool reproducible_;
  CachePlace place_;
  ColumnParallelLinear in_;  // z over x over B over C over dt
  Parameter conv_weight_, conv_bias_, a_, d_, dt_bias_;
  RmsNorm norm_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<SsdScanArgs> scan_;
  Kernel<GateArgs> gate_;  // without a norm
};

}  // namespace medley
