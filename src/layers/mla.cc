#include "layers/mla.h"

#include <algorithm>
#include <limits>

namespace medley {
namespace {

// Keys up-projected at a time: bounds the memory of a long prefill. Pieces lie at multiples of it.
constexpr int64_t piece_tokens = 512;

TensorView transposed(TensorView matrix) {
  std::swap(matrix.shape[0], matrix.shape[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

}  // namespace

Mla::Mla(LoadContext& context, const MlaSpec& spec, CacheLayout& cache, MlaPath path)
    : spec_(spec), dtype_(context.dtype), reproducible_(context.reproducible) {
  const std::string& at = spec.prefix;
  const int64_t nope = spec.qk_nope_head_dim, rope = spec.qk_rope_head_dim, v_dim = spec.v_head_dim;
  const int64_t rank = spec.kv_lora_rank;
  heads_ = units_of(context.shard(), spec.heads).count;
  const Slice by_head{.dim = 0, .units = spec.heads};
  const auto bias = [&](const char* name) { return spec.attention_bias ? at + name + ".bias" : std::string(); };

  if (spec.q_lora_rank) {
    q_a_.emplace(context, std::vector<LinearPart>{
                              {at + "q_a_proj.weight", bias("q_a_proj"), *spec.q_lora_rank, spec.hidden, {}}});
    q_a_norm_.emplace(context, at + "q_a_layernorm.weight", *spec.q_lora_rank, NormRule{spec.norm_eps});
  }
  const std::string q_name = at + (spec.q_lora_rank ? "q_b_proj.weight" : "q_proj.weight");
  const int64_t q_in = spec.q_lora_rank.value_or(spec.hidden);
  q_ = ColumnParallelLinear(context, {{q_name, "", spec.heads * (nope + rope), q_in, by_head}});
  kv_a_ =
      Linear(context, {{at + "kv_a_proj_with_mqa.weight", bias("kv_a_proj_with_mqa"), rank + rope, spec.hidden, {}}});
  kv_a_norm_ = RmsNorm(context, at + "kv_a_layernorm.weight", rank, NormRule{spec.norm_eps});

  // Multiplications per key, head and query: absorbed 2 rank + rope, piecewise nope + rope + v_dim and the
  // up-projection's rank * (nope + v_dim) shared by the row's queries. Absorbed never loses when it is the cheaper.
  const int64_t saved = 2 * rank - nope - v_dim;
  piecewise_from_ = saved > 0 ? rank * (nope + v_dim) / saved + 1 : std::numeric_limits<int64_t>::max();
  if (path == MlaPath::absorbed || context.reproducible) piecewise_from_ = std::numeric_limits<int64_t>::max();
  if (path == MlaPath::piecewise) piecewise_from_ = 1;

  if (piecewise_from_ != std::numeric_limits<int64_t>::max())
    kv_b_.emplace(context,
                  std::vector<LinearPart>{{at + "kv_b_proj.weight", "", spec.heads * (nope + v_dim), rank, by_head}});
  load_absorbed(context);
  o_ = RowParallelLinear(context, {.weight = at + "o_proj.weight",
                                   .bias = bias("o_proj"),
                                   .out = spec.hidden,
                                   .in = spec.heads * v_dim,
                                   .slice = {.units = spec.heads}});

  place_ = cache.add_paged("latent", (rank + rope) * int64_t(size_of(dtype_)), 0,
                           fmt::format("latent {} + rotary key {}", rank, rope));
  write_ = context.kernels.resolve(cache_write_op(), {.a_dim = rank, .b_dim = rope, .cache = dtype_});
  gather_ = context.kernels.resolve(cache_gather_op(), {.dim = rank + rope, .cache = dtype_});
  attention_ = context.kernels.resolve(
      paged_attention_op(),
      {.heads = heads_, .kv_heads = 1, .k_dim = rank + rope, .v_dim = rank, .cache = dtype_, .y = dtype_});
  if (spec.indexer) {
    indexer_.emplace(context, *spec.indexer, cache);
    sparse_attention_ = context.kernels.resolve(
        sparse_attention_op(),
        {.heads = heads_, .kv_heads = 1, .k_dim = rank + rope, .v_dim = rank, .cache = dtype_, .y = dtype_});
  }
  piece_ = context.kernels.resolve(piece_attention_op(),
                                   {.heads = heads_, .nope_dim = nope, .rope_dim = rope, .v_dim = v_dim, .kv = dtype_});
  to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
  copy_f32_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
}

// kv_b_proj holds, head by head, W_uk [nope, rank] over W_uv [v_dim, rank]. Absorbing multiplies the query by W_uk
// from the other side, so W_uk is packed transposed.
void Mla::load_absorbed(LoadContext& context) {
  const int64_t nope = spec_.qk_nope_head_dim, v_dim = spec_.v_head_dim, rank = spec_.kv_lora_rank;
  const TensorView kv_b = context.weights.take(spec_.prefix + "kv_b_proj.weight", {spec_.heads * (nope + v_dim), rank},
                                               {.dim = 0, .units = spec_.heads});
  std::vector<std::vector<TensorView>> uk, uv;
  for (int64_t head = 0; head < heads_; ++head) {
    const int64_t row = head * (nope + v_dim);
    if (kv_b.data == nullptr) {  // no checkpoint
      uk.push_back({TensorView(nullptr, kv_b.dtype, {rank, nope})});
      uv.push_back({TensorView(nullptr, kv_b.dtype, {v_dim, rank})});
      continue;
    }
    uk.push_back({transposed(kv_b.slice(0, row, nope))});
    uv.push_back({kv_b.slice(0, row + nope, v_dim)});
  }
  HeadwiseLinearDesc desc;
  desc.heads = heads_;
  desc.x = dtype_;
  desc.in = nope, desc.out = rank, desc.weight = packed_dtype(context, uk.at(0)[0]);
  absorb_q_ = context.kernels.resolve(headwise_linear_op(), desc);
  desc.in = rank, desc.out = v_dim, desc.weight = packed_dtype(context, uv.at(0)[0]);
  absorb_v_ = context.kernels.resolve(headwise_linear_op(), desc);
  w_uk_ = pack_matrices(context, absorb_q_.layout, uk);
  w_uv_ = pack_matrices(context, absorb_v_.layout, uv);
}

TensorView Mla::low_queries(const TensorView& x, ExecContext& exec) const {
  if (!q_a_) return x;
  const TensorView normed = exec.workspace.alloc(dtype_, {x.size(0), q_a_->out()});
  const Workspace::Scope scope(exec.workspace);
  const TensorView low = exec.workspace.alloc(DType::f32, {x.size(0), q_a_->out()});
  (*q_a_)(x, low, exec);
  (*q_a_norm_)(low, normed, exec);
  return normed;
}

Mla::Route Mla::route(const StepRow& row) const {
  if (indexer_ && (reproducible_ || row.computed + row.new_tokens > indexer_->top_k())) return Route::sparse;
  return row.new_tokens >= piecewise_from_ ? Route::piecewise : Route::absorbed;
}

void Mla::forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
                  ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, rank = spec_.kv_lora_rank, rope_dim = spec_.qk_rope_head_dim;
  // The keys' way into the cache is independent of the queries' up to the attention (which joins).
  const TensorView latent = exec.workspace.alloc(DType::f32, {tokens, rank + rope_dim});
  const auto write_keys = [&](ExecContext& side) {
    kv_a_(x, latent, side);
    const TensorView c_kv = latent.slice(1, 0, rank), k_rope = latent.slice(1, rank, rope_dim);
    kv_a_norm_(c_kv, c_kv, side);
    if (spec_.rope >= 0) ropes[size_t(spec_.rope)](k_rope.split_last(1, rope_dim), side);
    write_({.a = c_kv, .b = k_rope, .cache = paged_cache(step, place_, dtype_)}, side);
  };
  if (tokens <= most_tokens_beside) {
    exec.fork(write_keys);
  } else {
    write_keys(exec);
  }
  const TensorView q_low = low_queries(x, exec);
  const TensorView q_flat = exec.workspace.alloc(DType::f32, {tokens, q_.out()});
  q_(q_low, q_flat, exec);
  const TensorView q = q_flat.split_last(heads_, spec_.qk_nope_head_dim + rope_dim);
  if (spec_.rope >= 0) ropes[size_t(spec_.rope)](q.slice(2, spec_.qk_nope_head_dim, rope_dim), exec);

  TensorView selected;
  if (indexer_) selected = indexer_->select(step, x, q_low, ropes, exec);

  const TensorView heads = exec.workspace.alloc(dtype_, {tokens, heads_, spec_.v_head_dim});
  for (size_t first = 0; first < step.rows.size();) {
    const Route way = route(step.rows[first]);
    if (way == Route::piecewise) {
      piecewise(step, int64_t(first), q, heads, exec);
      ++first;
      continue;
    }
    size_t last = first + 1;
    while (last < step.rows.size() && route(step.rows[last]) == way) ++last;
    absorbed(step, int64_t(first), int64_t(last - first), q, way == Route::sparse ? selected : TensorView(), heads,
             exec);
    first = last;
  }
  o_(heads.reshape({tokens, heads_ * spec_.v_head_dim}), y, exec);
}

void Mla::absorbed(const Step& step, int64_t first_row, int64_t rows, const TensorView& q_all,
                   const TensorView& selected, const TensorView& heads_all, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t nope = spec_.qk_nope_head_dim, rope_dim = spec_.qk_rope_head_dim, rank = spec_.kv_lora_rank;
  const int64_t first = step.rows[size_t(first_row)].first_token;
  const StepRow& last_row = step.rows[size_t(first_row + rows - 1)];
  const int64_t tokens = last_row.first_token + last_row.new_tokens - first;
  const TensorView q = q_all.slice(0, first, tokens);
  const TensorView by_head = q.reshape({tokens * heads_, nope + rope_dim});

  const TensorView q_nope = exec.workspace.alloc(dtype_, {tokens, heads_, nope});
  to_dtype_({.x = by_head.slice(1, 0, nope), .y = q_nope.reshape({tokens * heads_, nope})}, exec);
  const TensorView q_latent = exec.workspace.alloc(DType::f32, {tokens, heads_, rank + rope_dim});
  absorb_q_({.x = q_nope, .weight = w_uk_.view, .y = q_latent.slice(2, 0, rank)}, exec);
  copy_f32_({.x = by_head.slice(1, nope, rope_dim),
             .y = q_latent.reshape({tokens * heads_, rank + rope_dim}).slice(1, rank, rope_dim)},
            exec);

  const TensorView attended = exec.workspace.alloc(dtype_, {tokens, heads_, rank});
  PagedCache cache = paged_cache(step, place_, dtype_);
  cache.block_table = cache.block_table.slice(0, first_row, rows);
  RaggedRows ragged = ragged_rows(step, first_row, rows, exec);
  exec.join();  // the keys are written
  if (selected) {
    sparse_attention_({.q = q_latent,
                       .cache = cache,
                       .rows = ragged,
                       .selected = selected.slice(0, first, tokens),
                       .kv_heads = 1,
                       .v_dim = rank,
                       .scale = spec_.scale,
                       .y = attended},
                      exec);
  } else {
    attention_({.q = q_latent,
                .cache = cache,
                .rows = ragged,
                .kv_heads = 1,
                .v_dim = rank,
                .scale = spec_.scale,
                .y = attended},
               exec);
  }
  absorb_v_({.x = attended, .weight = w_uv_.view, .y = heads_all.slice(0, first, tokens)}, exec);
}

void Mla::piecewise(const Step& step, int64_t row_index, const TensorView& q_all, const TensorView& heads_all,
                    ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const StepRow& row = step.rows[size_t(row_index)];
  const int64_t nope = spec_.qk_nope_head_dim, rope_dim = spec_.qk_rope_head_dim, v_dim = spec_.v_head_dim;
  const int64_t rank = spec_.kv_lora_rank, queries = row.new_tokens, context = row.computed + row.new_tokens;
  const TensorView y = exec.workspace.alloc(DType::f32, {queries, heads_, v_dim});
  const TensorView lse = exec.workspace.alloc(DType::f32, {queries, heads_});
  const PagedCache cache = paged_cache(step, place_, dtype_);
  exec.join();  // the keys are written
  for (int64_t begin = 0; begin < context; begin += piece_tokens) {
    const Workspace::Scope piece_scope(exec.workspace);
    const int64_t keys = std::min(piece_tokens, context - begin);
    const TensorView latent = exec.workspace.alloc(dtype_, {keys, rank + rope_dim});
    gather_({.cache = cache, .row = row_index, .first = begin, .y = latent}, exec);
    const TensorView kv = exec.workspace.alloc(dtype_, {keys, heads_ * (nope + v_dim)});
    (*kv_b_)(latent.slice(1, 0, rank), kv, exec);
    const TensorView kv_heads = kv.split_last(heads_, nope + v_dim);
    piece_({.q = q_all.slice(0, row.first_token, queries),
            .k_nope = kv_heads.slice(2, 0, nope),
            .k_rope = latent.slice(1, rank, rope_dim),
            .v = kv_heads.slice(2, nope, v_dim),
            .q_position = row.computed,
            .k_position = begin,
            .scale = spec_.scale,
            .first = begin == 0,
            .y = y,
            .lse = lse},
           exec);
  }
  const TensorView heads = heads_all.slice(0, row.first_token, queries);
  to_dtype_({.x = y.reshape({queries, heads_ * v_dim}), .y = heads.reshape({queries, heads_ * v_dim})}, exec);
}

}  // namespace medley
