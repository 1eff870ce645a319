#include "layers/gqa.h"

#include <cmath>

namespace medley {

Gqa::Gqa(LoadContext& context, const GqaSpec& spec, CacheLayout& cache) : spec_(spec), dtype_(context.dtype) {
  const HeadRange mine = heads_of(context.shard(), spec.heads, spec.kv_heads, spec.prefix + "attention");
  heads_ = mine.heads.count;
  kv_heads_ = mine.groups.count;
  const auto rows = [&](UnitRange range, int dim = 0) {
    return Slice{.dim = dim, .begin = range.begin * spec.head_dim, .count = range.count * spec.head_dim};
  };
  const auto part = [&](const char* name, int64_t heads, UnitRange range) {
    const std::string at = spec.prefix + name;
    return LinearPart{at + ".weight", spec.qkv_bias ? at + ".bias" : "", heads * spec.head_dim, spec.hidden,
                      rows(range)};
  };
  qkv_ =
      ColumnParallelLinear(context, {part("q_proj", spec.heads, mine.heads), part("k_proj", spec.kv_heads, mine.groups),
                                     part("v_proj", spec.kv_heads, mine.groups)});
  if (spec.qk_norm) {
    q_norm_.emplace(context, spec.prefix + "q_norm.weight", spec.head_dim, *spec.qk_norm);
    k_norm_.emplace(context, spec.prefix + "k_norm.weight", spec.head_dim, *spec.qk_norm);
  }
  o_ = RowParallelLinear(context, {.weight = spec.prefix + "o_proj.weight",
                                   .bias = spec.o_bias ? spec.prefix + "o_proj.bias" : "",
                                   .out = spec.hidden,
                                   .in = spec.heads * spec.head_dim,
                                   .slice = rows(mine.heads, 1)});
  if (spec_.scale == 0) spec_.scale = float(1 / std::sqrt(double(spec.head_dim)));

  const int64_t kv_dim = kv_heads_ * spec.head_dim;
  place_ = cache.add_paged(spec.window > 0 ? "window attention" : "attention", 2 * kv_dim * int64_t(size_of(dtype_)),
                           spec.window, fmt::format("key and value x {} heads x {}", kv_heads_, spec.head_dim));
  write_ = context.kernels.resolve(cache_write_op(), {.a_dim = kv_dim, .b_dim = kv_dim, .cache = dtype_});
  attention_ = context.kernels.resolve(paged_attention_op(), {.heads = heads_,
                                                              .kv_heads = kv_heads_,
                                                              .k_dim = spec.head_dim,
                                                              .v_dim = spec.head_dim,
                                                              .v_offset = kv_dim,
                                                              .cache = dtype_,
                                                              .y = dtype_,
                                                              .window = spec.window > 0});
}

void Gqa::forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
                  ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, dim = spec_.head_dim;
  const TensorView qkv = exec.workspace.alloc(DType::f32, {tokens, (heads_ + 2 * kv_heads_) * dim});
  qkv_(x, qkv, exec);
  const TensorView q = qkv.slice(1, 0, heads_ * dim);
  const TensorView k = qkv.slice(1, heads_ * dim, kv_heads_ * dim);
  const TensorView v = qkv.slice(1, (heads_ + kv_heads_) * dim, kv_heads_ * dim);
  if (q_norm_) {
    q_norm_->heads(q, exec);
    k_norm_->heads(k, exec);
  }
  const TensorView q_heads = q.split_last(heads_, dim);
  if (spec_.rope >= 0) {
    const StepRope& rope = ropes[size_t(spec_.rope)];
    rope(q_heads, exec);
    rope(k.split_last(kv_heads_, dim), exec);
  }
  const PagedCache cache = paged_cache(step, place_, dtype_);
  write_({.a = k, .b = v, .cache = cache}, exec);
  const TensorView heads = exec.workspace.alloc(dtype_, {tokens, heads_, dim});
  attention_({.q = q_heads,
              .cache = cache,
              .rows = ragged_rows(step),
              .kv_heads = kv_heads_,
              .v_dim = dim,
              .v_offset = kv_heads_ * dim,
              .scale = spec_.scale,
              .window = spec_.window,
              .y = heads},
             exec);
  o_(heads.reshape({tokens, heads_ * dim}), y, exec);
}

}  // namespace medley
