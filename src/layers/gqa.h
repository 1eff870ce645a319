// Grouped-query attention over a paged cache of keys and values (Ainslie et al. 2023), with what the families add:
// biases, norms of q and k, a window, sinks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/attention.h"
#include "kernels/gate.h"
#include "layers/cache_layout.h"
#include "layers/linear.h"
#include "layers/lora.h"
#include "layers/norm.h"
#include "layers/parameter.h"
#include "layers/rope.h"

namespace medley {

struct GqaSpec {
  std::string prefix;  // "model.layers.0.self_attn."
  int64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false;
  int rope = 0;                     // which of the model's ropes; -1: none
  std::optional<NormRule> qk_norm;  // of q_norm and k_norm, each head on its own
  bool qk_norm_whole = false;       // ... or all heads together (OLMoE)
  int32_t window = 0;               // tokens a query sees; 0: all
  bool sinks = false;               // a learnt logit per head that takes part of the softmax (gpt-oss)
  float scale = 0;                  // of the scores; 0: head_dim^-1/2
  int64_t out = 0;                  // width of the output; 0: hidden
  int64_t adapter_rank = 0;         // of low-rank additions to q, k and v; 0: none
  std::string adapter;              // "linear_q" + adapter + "0.weight": _adapter_list.N. of Zamba2
  bool gated = false;               // q_proj gives, head by head, q and a gate: sigmoid of it multiplies the output
  std::string q_norm_name = "q_norm", k_norm_name = "k_norm", o_name = "o_proj";
  float q_scale = 1, k_scale = 1, v_scale = 1, o_scale = 1;  // factors of the projections' outputs (Falcon-H1)
};

class Gqa {
 public:
  Gqa(LoadContext& context, const GqaSpec& spec, CacheLayout& cache);

  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden]. `ropes` by index.
  void forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
               ExecContext& exec) const;

 private:
  // Heads of q or k that this rank projects, and those of them that are its own. They differ when a norm takes all
  // heads together: then every rank has the whole projection.
  struct Projected {
    UnitRange heads;
    int64_t first = 0;  // of the own ones, among `heads`
  };

  GqaSpec spec_;
  int64_t heads_ = 0, kv_heads_ = 0;  // of this rank
  Projected q_, k_;
  DType dtype_;
  CachePlace place_;
  ColumnParallelLinear qkv_;
  std::optional<Lora> q_adapter_, k_adapter_, v_adapter_;
  std::optional<RmsNorm> q_norm_, k_norm_;
  Parameter sinks_;  // [heads]
  RowParallelLinear o_;
  Kernel<CacheWriteArgs> write_;
  Kernel<PagedAttentionArgs> attention_;
  Kernel<GateArgs> gate_;
};

}  // namespace medley
