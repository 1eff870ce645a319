// What gated delta nets and Kimi delta attention share: q, k and v through one causal convolution, the gated delta rule
// over the heads, a norm of each head with a gate, the output projection. The state per request: the convolution's tail
// f32 [width - 1, 2 key_heads x k_dim + heads x v_dim], then f32 [heads, k_dim, v_dim].
#pragma once

#include "kernels/linear_attention.h"
#include "kernels/state_space.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/parameter.h"

namespace medley {

struct DeltaRuleSizes {
  int64_t heads = 0, key_heads = 0;  // of this rank
  int64_t k_dim = 0, v_dim = 0, conv_width = 0;
  bool decay_per_channel = false;  // of each key channel, or of each head
  NormGate gate = NormGate::after;

  int64_t keys() const { return key_heads * k_dim; }
  int64_t values() const { return heads * v_dim; }
  int64_t channels() const { return 2 * keys() + values(); }
};

// The rank's parts.
struct DeltaRuleWeights {
  Parameter conv;     // [channels, conv_width]
  Parameter a;        // [heads]: -exp(A_log)
  Parameter dt_bias;  // as the decay
  RmsNorm norm;       // of v_dim
  RowParallelLinear out;
};

class DeltaRule {
 public:
  DeltaRule() = default;
  // `name` of the state, for the cache's report.
  DeltaRule(LoadContext& context, const std::string& name, const DeltaRuleSizes& sizes, DeltaRuleWeights weights,
            CacheLayout& cache);

  // qkv f32 [tokens, channels]; decay f32 [tokens, heads (x k_dim)] and beta f32 [tokens, heads], both before their
  // nonlinearities; gate f32 [tokens, heads x v_dim]; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& qkv, const TensorView& decay, const TensorView& beta,
               const TensorView& gate, const TensorView& y, ExecContext& exec) const;

 private:
  DeltaRuleSizes sizes_;
  DeltaRuleWeights weights_;
  DType dtype_ = DType::f32;
  bool reproducible_ = false;
  CachePlace place_;
  Kernel<CausalConvArgs> conv_;
  Kernel<GatedDeltaArgs> scan_;
};

}  // namespace medley
