#include "layers/indexer.h"

#include <algorithm>

namespace medley {

Indexer::Indexer(LoadContext& context, const IndexerSpec& spec, CacheLayout& cache)
    : spec_(spec), dtype_(context.dtype) {
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    return Linear(context, {{spec.prefix + name, "", out, in, {}}});
  };
  q_ = linear("wq_b.weight", spec.heads * spec.head_dim, spec.q_in);
  k_ = linear("wk.weight", spec.head_dim, spec.hidden);
  head_weights_ = linear("weights_proj.weight", spec.heads, spec.hidden);
  k_norm_weight_ = take_parameter(context, spec.prefix + "k_norm.weight", {spec.head_dim});
  k_norm_bias_ = take_parameter(context, spec.prefix + "k_norm.bias", {spec.head_dim});
  k_norm_ = context.kernels.resolve(layer_norm_op(), {.dim = spec.head_dim});
  place_ = cache.add_paged("indexer keys", spec.head_dim * int64_t(size_of(dtype_)), 0,
                           fmt::format("index key {}", spec.head_dim));
  write_ = context.kernels.resolve(cache_write_op(), {.a_dim = spec.head_dim, .b_dim = 0, .cache = dtype_});
  select_ = context.kernels.resolve(index_select_op(), {.heads = spec.heads, .dim = spec.head_dim, .cache = dtype_});
}

TensorView Indexer::select(const Step& step, const TensorView& x, const TensorView& q_low,
                           std::span<const StepRope> ropes, ExecContext& exec) const {
  constexpr float k_norm_eps = 1e-6f;
  const int64_t tokens = step.num_tokens, dim = spec_.head_dim;
  const RaggedRows rows = ragged_rows(step);
  const TensorView selected = exec.workspace.alloc(DType::i32, {tokens, std::min(spec_.top_k, rows.max_context)});
  const Workspace::Scope scope(exec.workspace);
  const StepRope& rope = ropes[size_t(spec_.rope)];
  const TensorView k = exec.workspace.alloc(DType::f32, {tokens, dim});
  k_(x, k, exec);
  k_norm_({.x = k, .weight = k_norm_weight_.data(), .bias = k_norm_bias_.data(), .eps = k_norm_eps, .y = k}, exec);
  rope(k.split_last(1, dim), exec);
  const PagedCache cache = paged_cache(step, place_, dtype_);
  write_({.a = k, .b = k.slice(1, 0, 0), .cache = cache}, exec);

  const TensorView q = exec.workspace.alloc(DType::f32, {tokens, spec_.heads * dim});
  const TensorView weights = exec.workspace.alloc(DType::f32, {tokens, spec_.heads});
  q_(q_low, q, exec);
  const TensorView heads = q.split_last(spec_.heads, dim);
  rope(heads, exec);
  head_weights_(x, weights, exec);
  select_({.q = heads, .weights = weights, .cache = cache, .rows = rows, .top_k = spec_.top_k, .selected = selected},
          exec);
  return selected;
}

}  // namespace medley
