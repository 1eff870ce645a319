// Mamba mixer (Gu and Dao 2023): in_proj -> causal convolution -> selective scan -> out_proj, with a state per request:
// the convolution's tail f32 [width - 1, channels], then the recurrent state f32 [channels, states].
#pragma once

#include <optional>

#include "kernels/pointwise.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

namespace medley {

struct MambaSpec {
  std::string prefix;  // "backbone.layers.0.mixer."
  int64_t hidden = 0, channels = 0, states = 0, conv_width = 0, dt_rank = 0;
  bool conv_bias = true, proj_bias = false;
  std::optional<float> parameter_norms;  // eps of dt_layernorm, b_layernorm and c_layernorm (Jamba)
  bool parameter_norm_weights = true;    // these norms have weights (not in Falcon Mamba)

  MambaSpec at(const std::string& place) const {
    MambaSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class Mamba {
 public:
  Mamba(LoadContext& context, const MambaSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  // A matrix product's input: `x` itself in f32, a converted copy otherwise.
  TensorView as_input(const TensorView& x, ExecContext& exec) const;

  MambaSpec spec_;
  int64_t channels_ = 0;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear in_;  // x over z
  Parameter conv_weight_, conv_bias_, a_, d_, dt_bias_;
  RowParallelLinear x_proj_;  // dt over B over C
  ColumnParallelLinear dt_proj_;
  std::optional<RmsNorm> dt_norm_, b_norm_, c_norm_;
  RowParallelLinear out_;
  Kernel<CausalConvArgs> conv_;
  Kernel<SelectiveScanArgs> scan_;
  Kernel<ConvertRowsArgs> to_dtype_;
};

// -exp(A_log), as both scans take it.
std::vector<float> negative_exponential(std::vector<float> a_log);

}  // namespace medley
