// Multi-head latent attention (DeepSeek-V2, section 2.1). The cache holds, per token, the normed latent c_kv
// [kv_lora_rank] and the rotated key part k_rope [qk_rope_head_dim] that all heads share; K and V are never stored.
//
// Two paths over that one cache. Absorbed: W_uk is folded into the query and W_uv into the output, so that attention
// reads the latent once for all heads; every decode takes it. Piecewise: K and V of the context are up-projected, a
// piece of the context at a time, and the pieces' results merged by log-sum-exp; long prefills take it, for they
// share the up-projection among many queries. Which one a row takes depends on the row's own number of new tokens, and
// with --reproducible it is always the absorbed one.
//
// With an indexer (DeepSeek-V3.2), rows whose context is longer than its top_k take the absorbed path over the selected
// keys. Shorter rows see every key and need no selection; with --reproducible they go the same way all the same.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "kernels/attention.h"
#include "kernels/pointwise.h"
#include "layers/cache_layout.h"
#include "layers/indexer.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/rope.h"

namespace medley {

struct MlaSpec {
  std::string prefix;  // "model.layers.0.self_attn."
  int64_t hidden = 0, heads = 0;
  std::optional<int64_t> q_lora_rank;  // none: q_proj straight from x
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0, qk_rope_head_dim = 0, v_head_dim = 0;
  bool attention_bias = false;
  float norm_eps = 1e-6f;  // of the two latent norms
  float scale = 0;         // of the scores, YaRN's mscale included
  int rope = 0;            // which of the model's ropes; -1: none
  std::optional<IndexerSpec> indexer;
};

enum class MlaPath : uint8_t { by_shape, absorbed, piecewise };

class Mla {
 public:
  Mla(LoadContext& context, const MlaSpec& spec, CacheLayout& cache, MlaPath path = MlaPath::by_shape);

  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
               ExecContext& exec) const;

  // From this many new tokens on, up-projecting the context costs less than absorbed attention over it.
  int64_t piecewise_from() const { return piecewise_from_; }

 private:
  // A row's way through the cache.
  enum class Route : uint8_t { absorbed, piecewise, sparse };
  Route route(const StepRow& row) const;

  TensorView low_queries(const TensorView& x,
                         ExecContext& exec) const;  // of the model's dtype; x itself without a rank
  // Both fill heads [tokens, heads, v_head_dim] for their rows; `selected` of the whole step, or empty: every key.
  void absorbed(const Step& step, int64_t first_row, int64_t rows, const TensorView& q, const TensorView& selected,
                const TensorView& heads, ExecContext& exec) const;
  void piecewise(const Step& step, int64_t row, const TensorView& q, const TensorView& heads, ExecContext& exec) const;
  void load_absorbed(LoadContext& context);

  MlaSpec spec_;
  int64_t heads_ = 0;  // of this rank
  DType dtype_;
  int64_t piecewise_from_ = 0;
  bool reproducible_ = false;
  CachePlace place_;
  std::optional<Indexer> indexer_;
  std::optional<Linear> q_a_;
  std::optional<RmsNorm> q_a_norm_;
  ColumnParallelLinear q_;  // q_proj, or q_b_proj
  Linear kv_a_;             // [kv_lora_rank + qk_rope_head_dim, hidden], on every rank
  RmsNorm kv_a_norm_;
  std::optional<ColumnParallelLinear> kv_b_;  // [heads * (nope + v), kv_lora_rank], for the piecewise path
  PackedMatrices w_uk_;                       // heads x [kv_lora_rank, nope]
  PackedMatrices w_uv_;                       // heads x [v_head_dim, kv_lora_rank]
  RowParallelLinear o_;
  Kernel<HeadwiseLinearArgs> absorb_q_, absorb_v_;
  Kernel<CacheWriteArgs> write_;
  Kernel<CacheGatherArgs> gather_;
  Kernel<PagedAttentionArgs> attention_;
  Kernel<SparseAttentionArgs> sparse_attention_;
  Kernel<PieceAttentionArgs> piece_;
  Kernel<ConvertRowsArgs> to_dtype_, copy_f32_;
};

}  // namespace medley
