// Lightning attention (MiniMax-01, section 2.2): linear attention with a constant decay per head over silu(q), silu(k),
// silu(v), one norm over all heads, a sigmoid gate. The state per request is f32 [heads, dim, dim], and with rounded
// tables also the keys and values of a block.
#pragma once

#include "kernels/linear_attention.h"
#include "kernels/pointwise.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

namespace medley {

struct LightningSpec {
  std::string prefix;  // "model.layers.0.self_attn."
  int64_t hidden = 0, heads = 0, dim = 0;
  Activation activation = Activation::silu;
  std::vector<float> slopes;  // [heads]: a step multiplies a head's state by exp(-slope)
  int64_t block = 0;          // positions a table covers, in checkpoints that store the decay's powers
  float norm_eps = 1e-6f;

  LightningSpec at(const std::string& place) const {
    LightningSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class Lightning {
 public:
  Lightning(LoadContext& context, const LightningSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  void load_tables(LoadContext& context, UnitRange mine);

  LightningSpec spec_;
  int64_t heads_ = 0;  // of this rank
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear qkv_;  // head by head q, k, v
  ColumnParallelLinear gate_;
  Parameter decay_;
  // The stored powers, where they are not those of the slopes but rounded: [heads, block] and [heads, block, block].
  int64_t block_ = 0;
  Parameter query_decay_, key_decay_, diagonal_decay_, block_decay_;
  RmsNorm norm_;
  RowParallelLinear out_;
  Kernel<GatedActivationArgs> activate_;
  Kernel<LightningArgs> scan_;
};

}  // namespace medley
