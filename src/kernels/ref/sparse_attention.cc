// Plainly: a score for every key, the best of them by a partial sort, attention over the list.
#include "kernels/sparse_attention.h"

#include <numeric>

#include "kernels/ref/attend.h"

namespace medley::ref {
namespace {

template <class T>
void select(const IndexSelectArgs& a, int64_t token) {
  const int64_t row = row_of(a.rows, token), heads = a.q.size(1), dim = a.q.size(2);
  const int64_t first = a.rows.row_offsets.as<int32_t>()[row];
  const int64_t keys = a.rows.computed.as<int32_t>()[row] + token - first + 1;
  const int64_t count = std::min(keys, a.top_k);
  int32_t* selected = a.selected.row<int32_t>(token);
  std::fill(selected + count, selected + a.selected.size(1), -1);
  std::vector<int32_t> order(static_cast<size_t>(keys));
  std::iota(order.begin(), order.end(), 0);
  if (keys > count) {
    const float* weights = a.weights.row<float>(token);
    std::vector<float> scores;
    for (int64_t p = 0; p < keys; ++p) {
      const T* key = cache_row<const T>(a.cache, row, p);
      float score = 0;
      for (int64_t h = 0; h < heads; ++h) {
        const float* q = a.q.row<float>(token) + h * a.q.strides[1];
        score += weights[h] * std::max(dot(q, key, dim), 0.0f);
      }
      scores.push_back(score);
    }
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t x, int32_t y) {
      if (scores[size_t(x)] != scores[size_t(y)]) return scores[size_t(x)] > scores[size_t(y)];
      return a.later_ties ? x > y : x < y;
    });
    std::sort(order.begin(), order.begin() + count);
  }
  std::copy(order.begin(), order.begin() + count, selected);
}

void run_select(const IndexSelectArgs& a, ExecContext& context) {
  with_float_type(a.cache.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.rows.num_tokens, [&](int64_t token, int) { select<T>(a, token); });
  });
}

void run_sparse(const SparseAttentionArgs& a, ExecContext& context) {
  const int64_t heads = a.q.size(1), k_dim = a.q.size(2);
  with_float_type(a.cache.dtype, [&](auto* type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using T = std::remove_pointer_t<decltype(type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      context.threads.parallel_for(a.rows.num_tokens * heads, [&](int64_t task, int) {
        const int64_t token = task / heads, head = task % heads, kv_head = head / (heads / a.kv_heads);
        const int32_t* selected = a.selected.row<int32_t>(token);
        const int64_t count = std::find(selected, selected + a.selected.size(1), -1) - selected;
        const HeadQuery query{.q = a.q.row<float>(token) + head * a.q.strides[1],
                              .k_dim = k_dim,
                              .v_dim = a.v_dim,
                              .k_offset = a.k_offset + kv_head * k_dim,
                              .v_offset = a.v_offset + kv_head * a.v_dim,
                              .scale = a.scale};
        attend<T>(
            query, a.cache, row_of(a.rows, token), count, [selected](int64_t i) { return selected[i]; },
            a.y.row<Y>(token) + head * a.y.strides[1]);
      });
    });
  });
}

}  // namespace

extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select{"ref.index_select", Level::ref, any,
                                                                           run_select};
extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention{"ref.sparse_attention",
                                                                                       Level::ref, any, run_sparse};

}  // namespace medley::ref
