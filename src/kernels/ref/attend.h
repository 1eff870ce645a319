// One query of one head over listed rows of a paged cache: what dense and sparse attention share.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/ref/scalar.h"
#include "kernels/rows.h"

namespace medley::ref {

template <class T>
T* cache_row(const PagedCache& cache, int64_t row, int64_t token) {
  const int64_t block = cache.block_table.row<int32_t>(row)[token / cache.tokens_per_block];
  MEDLEY_CHECK(block >= 0);
  return reinterpret_cast<T*>(cache.base + (block + token % cache.tokens_per_block) * cache.row_bytes);
}

struct HeadQuery {
  const float* q = nullptr;
  int64_t k_dim = 0, v_dim = 0;
  int64_t k_offset = 0, v_offset = 0;  // of this head's key and value in a cache row
  float scale = 1, softcap = 0;
  const float* sink = nullptr;
};

// y [v_dim] = softmax(scale * q k^T) v over the tokens position(0), ..., position(count - 1) of row `row`, in this
// order.
template <class T, class Y, class Position>
void attend(const HeadQuery& a, const PagedCache& cache, int64_t row, int64_t count, const Position& position, Y* y) {
  std::vector<float> scores(static_cast<size_t>(count)), sum(static_cast<size_t>(a.v_dim), 0.0f);
  float highest = a.sink != nullptr ? *a.sink : -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    float score = dot(a.q, cache_row<const T>(cache, row, position(i)) + a.k_offset, a.k_dim) * a.scale;
    if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
    scores[size_t(i)] = score;
    highest = std::max(highest, score);
  }
  float total = a.sink != nullptr ? std::exp(*a.sink - highest) : 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float weight = std::exp(scores[size_t(i)] - highest);
    const T* v = cache_row<const T>(cache, row, position(i)) + a.v_offset;
    total += weight;
    for (int64_t d = 0; d < a.v_dim; ++d) sum[size_t(d)] += weight * to_float(v[d]);
  }
  for (int64_t d = 0; d < a.v_dim; ++d) store(y + d, sum[size_t(d)] / total);
}

// The row that token `token` of the step belongs to.
inline int64_t row_of(const RaggedRows& rows, int64_t token) {
  const int32_t* offsets = rows.row_offsets.as<int32_t>();
  return std::upper_bound(offsets, offsets + rows.num_rows + 1, token) - offsets - 1;
}

}  // namespace medley::ref
