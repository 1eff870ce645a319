#include "layers/gqa.h"

#include <cmath>

namespace medley {

Gqa::Gqa(LoadContext& context, const GqaSpec& spec, CacheLayout& cache) : spec_(spec), dtype_(context.dtype) {
  const HeadRange mine = heads_of(context.shard(), spec.heads, spec.kv_heads, spec.prefix + "attention");
  heads_ = mine.heads.count;
  kv_heads_ = mine.groups.count;
  const bool whole = spec.qk_norm && spec.qk_norm_whole;
  q_ = whole ? Projected{{0, spec.heads}, mine.heads.begin} : Projected{mine.heads, 0};
  k_ = whole ? Projected{{0, spec.kv_heads}, mine.groups.begin} : Projected{mine.groups, 0};
  const auto rows = [&](UnitRange range, int dim = 0) {
    return Slice{.dim = dim, .begin = range.begin * spec.head_dim, .count = range.count * spec.head_dim};
  };
  std::vector<LinearPart> parts;
  const auto part = [&](const char* name, int64_t out, const Slice& slice, float scale) {
    const std::string at = spec.prefix + name;
    parts.push_back({at + ".weight", spec.qkv_bias ? at + ".bias" : "", out, spec.hidden, slice, scale});
  };
  if (spec.gated) {
    for (const int64_t half : {0, 1})  // all of q, then all of the gate
      for (int64_t head = mine.heads.begin; head < mine.heads.begin + mine.heads.count; ++head)
        part("q_proj", 2 * spec.heads * spec.head_dim,
             {.dim = 0, .begin = (2 * head + half) * spec.head_dim, .count = spec.head_dim}, spec.q_scale);
  } else {
    part("q_proj", spec.heads * spec.head_dim, rows(q_.heads), spec.q_scale);
  }
  part("k_proj", spec.kv_heads * spec.head_dim, rows(k_.heads), spec.k_scale);
  part("v_proj", spec.kv_heads * spec.head_dim, rows(mine.groups), spec.v_scale);
  qkv_ = ColumnParallelLinear(context, parts);
  if (spec.adapter_rank > 0) {
    const auto adapter = [&](const char* name, int64_t heads, UnitRange range) {
      return Lora(context, spec.prefix + name + spec.adapter, spec.hidden, spec.adapter_rank, heads * spec.head_dim,
                  {rows(range)});
    };
    q_adapter_ = adapter("linear_q", spec.heads, q_.heads);
    k_adapter_ = adapter("linear_k", spec.kv_heads, k_.heads);
    v_adapter_ = adapter("linear_v", spec.kv_heads, mine.groups);
  }
  if (spec.qk_norm) {
    const int64_t q_dim = spec.head_dim * (whole ? spec.heads : 1), k_dim = spec.head_dim * (whole ? spec.kv_heads : 1);
    q_norm_.emplace(context, spec.prefix + spec.q_norm_name + ".weight", q_dim, *spec.qk_norm);
    k_norm_.emplace(context, spec.prefix + spec.k_norm_name + ".weight", k_dim, *spec.qk_norm);
  }
  if (spec.sinks)
    sinks_ = take_parameter(context, spec.prefix + "sinks", {spec.heads},
                            {.begin = mine.heads.begin, .count = mine.heads.count});
  o_ = RowParallelLinear(context, {.weight = spec.prefix + spec.o_name + ".weight",
                                   .bias = spec.o_bias ? spec.prefix + spec.o_name + ".bias" : "",
                                   .out = spec.out > 0 ? spec.out : spec.hidden,
                                   .in = spec.heads * spec.head_dim,
                                   .slice = rows(mine.heads, 1),
                                   .scale = spec.o_scale});
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
                                                              .y = spec.gated ? DType::f32 : dtype_,
                                                              .window = spec.window > 0,
                                                              .sinks = spec.sinks});
  if (spec.gated) gate_ = context.kernels.resolve(gate_op(), {.act = Gate::sigmoid, .y = dtype_});
}

void Gqa::forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
                  ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, dim = spec_.head_dim;
  const int64_t width = heads_ * dim, q_width = q_.heads.count * dim, k_width = k_.heads.count * dim;
  const int64_t k_at = spec_.gated ? 2 * q_width : q_width;
  const TensorView qkv = exec.workspace.alloc(DType::f32, {tokens, qkv_.out()});
  qkv_(x, qkv, exec);
  if (q_adapter_) {
    q_adapter_->add(x, qkv.slice(1, 0, q_width), exec);
    k_adapter_->add(x, qkv.slice(1, k_at, k_width), exec);
    v_adapter_->add(x, qkv.slice(1, k_at + k_width, kv_heads_ * dim), exec);
  }
  if (q_norm_) {
    q_norm_->heads(qkv.slice(1, 0, q_width), exec);
    k_norm_->heads(qkv.slice(1, k_at, k_width), exec);
  }
  const TensorView q = qkv.slice(1, q_.first * dim, heads_ * dim);
  const TensorView k = qkv.slice(1, k_at + k_.first * dim, kv_heads_ * dim);
  const TensorView v = qkv.slice(1, k_at + k_width, kv_heads_ * dim);
  const TensorView q_heads = q.split_last(heads_, dim);
  if (spec_.rope >= 0) {
    const StepRope& rope = ropes[size_t(spec_.rope)];
    rope(q_heads, exec);
    rope(k.split_last(kv_heads_, dim), exec);
  }
  const PagedCache cache = paged_cache(step, place_, dtype_);
  write_({.a = k, .b = v, .cache = cache}, exec);
  const TensorView heads = exec.workspace.alloc(spec_.gated ? DType::f32 : dtype_, {tokens, heads_, dim});
  attention_({.q = q_heads,
              .cache = cache,
              .rows = ragged_rows(step),
              .kv_heads = kv_heads_,
              .v_dim = dim,
              .v_offset = kv_heads_ * dim,
              .scale = spec_.scale,
              .window = spec_.window,
              .sinks = sinks_.data(),
              .y = heads},
             exec);
  TensorView attended = heads.reshape({tokens, width});
  if (spec_.gated) {
    const TensorView gated = exec.workspace.alloc(dtype_, {tokens, width});
    gate_({.x = attended, .gate = qkv.slice(1, q_width, width), .act = Gate::sigmoid, .y = gated}, exec);
    attended = gated;
  }
  o_(attended, y, exec);
}

}  // namespace medley
