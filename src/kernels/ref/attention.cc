// Attention, plainly: one query of one head at a time, keys in ascending position. The arithmetic of a query depends on
// its own position alone, so a row's chunking cannot change it.
#include "kernels/attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/ref/attend.h"

namespace medley::ref {
namespace {

void run_write(const CacheWriteArgs& a, ExecContext& context) {
  with_float_type(a.cache.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.a.size(0), [&](int64_t t, int) {
      const int64_t slot = a.cache.slot_mapping.as<int64_t>()[t];
      if (slot < 0) return;
      T* to = reinterpret_cast<T*>(a.cache.base + slot * a.cache.row_bytes);
      for (int64_t i = 0; i < a.a.size(1); ++i) store(to + i, a.a.row<float>(t)[i]);
      for (int64_t i = 0; i < a.b.size(1); ++i) store(to + a.a.size(1) + i, a.b.row<float>(t)[i]);
    });
  });
}

void run_gather(const CacheGatherArgs& a, ExecContext& context) {
  with_float_type(a.cache.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.y.size(0), [&](int64_t i, int) {
      const T* from = cache_row<const T>(a.cache, a.row, a.first + i);
      std::copy(from, from + a.y.size(1), a.y.row<T>(i));
    });
  });
}

void run_paged(const PagedAttentionArgs& a, ExecContext& context) {
  const int64_t heads = a.q.size(1), k_dim = a.q.size(2);
  with_float_type(a.cache.dtype, [&](auto* type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using T = std::remove_pointer_t<decltype(type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      context.threads.parallel_for(a.rows.num_tokens * heads, [&](int64_t task, int) {
        const int64_t token = task / heads, head = task % heads, kv_head = head / (heads / a.kv_heads);
        const int64_t row = row_of(a.rows, token);
        const int64_t first = a.rows.row_offsets.as<int32_t>()[row];
        const int64_t position = a.rows.computed.as<int32_t>()[row] + token - first;
        const int64_t begin = a.window > 0 ? std::max<int64_t>(0, position - a.window + 1) : 0;
        const HeadQuery query{.q = a.q.row<float>(token) + head * a.q.strides[1],
                              .k_dim = k_dim,
                              .v_dim = a.v_dim,
                              .k_offset = a.k_offset + kv_head * k_dim,
                              .v_offset = a.v_offset + kv_head * a.v_dim,
                              .scale = a.scale,
                              .softcap = a.softcap,
                              .sink = a.sinks != nullptr ? a.sinks + head : nullptr};
        attend<T>(
            query, a.cache, row, position + 1 - begin, [begin](int64_t i) { return begin + i; },
            a.y.row<Y>(token) + head * a.y.strides[1]);
      });
    });
  });
}

// One query head over one piece, merged into y and lse: with lse' = log(exp(lse) + exp(lse_piece)) the old result is
// weighted by exp(lse - lse') and the piece's by exp(lse_piece - lse').
template <class T>
void attend_piece(const PieceAttentionArgs& a, int64_t query, int64_t head) {
  const int64_t nope = a.k_nope.size(2), rope = a.k_rope.size(1), v_dim = a.v.size(2);
  const int64_t seen = std::clamp<int64_t>(a.q_position + query - a.k_position + 1, 0, a.k_nope.size(0));
  const float* q = a.q.row<float>(query) + head * a.q.strides[1];
  float* y = a.y.row<float>(query) + head * a.y.strides[1];
  float& lse = a.lse.row<float>(query)[head];
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  if (a.first) {
    lse = nothing;
    std::fill(y, y + v_dim, 0.0f);
  }
  if (seen == 0) return;
  std::vector<float> scores(static_cast<size_t>(seen)), sum(static_cast<size_t>(v_dim), 0.0f);
  float highest = nothing;
  for (int64_t k = 0; k < seen; ++k) {
    const float score =
        (dot(q, a.k_nope.row<T>(k) + head * a.k_nope.strides[1], nope) + dot(q + nope, a.k_rope.row<T>(k), rope)) *
        a.scale;
    scores[size_t(k)] = score;
    highest = std::max(highest, score);
  }
  float total = 0;
  for (int64_t k = 0; k < seen; ++k) {
    const float weight = std::exp(scores[size_t(k)] - highest);
    total += weight;
    const T* v = a.v.row<T>(k) + head * a.v.strides[1];
    for (int64_t i = 0; i < v_dim; ++i) sum[size_t(i)] += weight * to_float(v[i]);
  }
  const float piece_lse = highest + std::log(total);
  const float top = std::max(lse, piece_lse);
  const float merged = top + std::log(std::exp(lse - top) + std::exp(piece_lse - top));
  const float old_share = std::exp(lse - merged), piece_share = std::exp(piece_lse - merged) / total;
  for (int64_t i = 0; i < v_dim; ++i) y[i] = y[i] * old_share + sum[size_t(i)] * piece_share;
  lse = merged;
}

void run_piece(const PieceAttentionArgs& a, ExecContext& context) {
  const int64_t heads = a.q.size(1);
  with_float_type(a.k_nope.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.q.size(0) * heads,
                                 [&](int64_t task, int) { attend_piece<T>(a, task / heads, task % heads); });
  });
}

}  // namespace

extern const Implementation<CacheWriteDesc, CacheWriteArgs> cache_write{"ref.cache_write", Level::ref, any, run_write};
extern const Implementation<CacheGatherDesc, CacheGatherArgs> cache_gather{"ref.cache_gather", Level::ref, any,
                                                                           run_gather};
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention{"ref.paged_attention", Level::ref,
                                                                                    any, run_paged};
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{"ref.piece_attention", Level::ref,
                                                                                    any, run_piece};

}  // namespace medley::ref
