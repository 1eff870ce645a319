// One block of attention through Highway: scores, running softmax, weighted values. See attention_tiles.h.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "kernels/attention_tiles.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {
using attention::Block;
using attention::block_keys;
using attention::Rows;
using attention::Scoring;

// Sums held in registers beside the operands: 6 x 4 of 32 registers, else 2 x 4.
constexpr int tile_rows = many_registers ? 6 : 2;
constexpr int tile_keys = 4;
constexpr int tile_vectors = 4;

// Into the second-level cache: rows of a cache often lie a power of two apart, where they would push each other out of
// the first.
HWY_INLINE void fetch(const std::byte* from, int64_t bytes) {
  for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(from + byte, 0, 2);
}

// Adds q . k over one part of the keys to the sums of `rows` queries and tile_keys keys.
template <int rows, class T>
HWY_INLINE void add_products(const float* q, int64_t q_stride, const T* const (&k)[tile_keys], int64_t dim,
                             V (&sums)[rows][tile_keys]) {
  const D d;
  int64_t i = 0;
  for (; i + lanes <= dim; i += lanes) {
    V keys[tile_keys];
    HWY_UNROLL(4)
    for (int j = 0; j < tile_keys; ++j) keys[j] = load(k[j] + i);
    HWY_UNROLL(6)
    for (int r = 0; r < rows; ++r) {
      const V query = hn::LoadU(d, q + r * q_stride + i);
      HWY_UNROLL(4)
      for (int j = 0; j < tile_keys; ++j) sums[r][j] = hn::MulAdd(query, keys[j], sums[r][j]);
    }
  }
  if (i == dim) return;
  for (int j = 0; j < tile_keys; ++j) {
    const V key = load_tail(k[j] + i, dim - i);
    HWY_UNROLL(6)
    for (int r = 0; r < rows; ++r) sums[r][j] = hn::MulAdd(hn::LoadU(d, q + r * q_stride + i), key, sums[r][j]);
  }
}

// A group of tile_keys keys.
template <class T>
struct Keys {
  int first = 0;  // index in the block
  const T* k[tile_keys];
  const T* rest[tile_keys];

  Keys(const Block& block, int64_t shift, int key) : first(key) {
    for (int j = 0; j < tile_keys; ++j) {  // outside [begin, end): any key that is there, its score is not used
      const int index = std::clamp(key + j, block.begin, block.end - 1);
      k[j] = reinterpret_cast<const T*>(block.k[index] + shift);
      rest[j] = reinterpret_cast<const T*>(block.rest[index]);
    }
  }
};

template <int rows, class T>
void score_tile(const Rows& all, int row, const Keys<T>& keys) {
  const D d;
  V sums[rows][tile_keys];
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(4)
    for (int j = 0; j < tile_keys; ++j) sums[r][j] = hn::Zero(d);
  }
  const int64_t q_stride = all.q_stride();
  const float* q = all.q + row * q_stride;
  add_products<rows, T>(q, q_stride, keys.k, all.k_dim, sums);
  if (all.rest_dim > 0)
    add_products<rows, T>(q + attention::padded(all.k_dim), q_stride, keys.rest, all.rest_dim, sums);
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) store_sums(sums[r], all.scores + (row + r) * block_keys + keys.first);
}

// Scores to weights exp(score - highest), in place; what a row does not see gets weight zero. Leaves in `shrink` the
// new highest score's distance from the old one.
template <bool capped>
HWY_INLINE void soften(const Rows& rows, int r, const Block& block, const Scoring& scoring) {
  const D d;
  float* scores = rows.scores + r * block_keys;
  if (block.first[r] >= block.last[r]) {
    rows.shrink[r] = rows.fresh[r] = 0;
    return;
  }
  const V scale = hn::Set(d, scoring.scale), nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const V first = hn::Set(d, float(block.first[r])), last = hn::Set(d, float(block.last[r]));
  const bool whole = block.first[r] == 0 && block.last[r] == block_keys;
  [[maybe_unused]] const V cap = hn::Set(d, scoring.softcap);
  V top = nothing;
  for (int j = 0; j < block_keys; j += lanes) {
    V score = hn::Mul(hn::LoadU(d, scores + j), scale);
    if constexpr (capped) score = hn::Mul(cap, tanh(d, hn::Div(score, cap)));
    if (!whole) {
      const V index = hn::Iota(d, float(j));
      score = hn::IfThenElse(hn::And(hn::Ge(index, first), hn::Lt(index, last)), score, nothing);
    }
    hn::StoreU(score, d, scores + j);
    top = hn::Max(top, score);
  }
  const float highest = std::max(rows.highest[r], hn::GetLane(hn::MaxOfLanes(d, top)));
  const V all_highest = hn::Set(d, highest);
  V total = hn::Zero(d);
  for (int j = 0; j < block_keys; j += lanes) {
    const V weight = exp(d, hn::Sub(hn::LoadU(d, scores + j), all_highest));
    hn::StoreU(weight, d, scores + j);
    total = hn::Add(total, weight);
  }
  rows.shrink[r] = rows.highest[r] - highest;
  rows.highest[r] = highest;
  rows.fresh[r] = hn::GetLane(hn::SumOfLanes(d, total));
}

// shrink becomes the factor for what the rows had before, and their totals take in the block's.
HWY_INLINE void shrink_totals(const Rows& rows) {
  const D d;
  for (int r = 0; r < rows.count; r += lanes) hn::StoreU(exp(d, hn::LoadU(d, rows.shrink + r)), d, rows.shrink + r);
  for (int r = 0; r < rows.count; ++r) rows.total[r] = rows.total[r] * rows.shrink[r] + rows.fresh[r];
}

// Adds weight * value of keys [from, to). A key that only some rows see must not even add zero times a value to the
// others: it may be infinite, and it would not be there if the chunk ended earlier.
template <bool seen_by_all, int rows, int vectors, class T>
HWY_INLINE void add_values(const Block& block, const Block* next, int64_t offset, int tail, const float* weights,
                           const int32_t* first, const int32_t* last, int64_t from, int64_t to,
                           V (&sums)[rows][vectors]) {
  const D d;
  for (int64_t j = from; j < to; ++j) {
    if (next != nullptr && j < next->end) fetch(next->v[j] + offset, vectors * lanes * int64_t(sizeof(T)));
    const T* value = reinterpret_cast<const T*>(block.v[j] + offset);
    V values[vectors];
    HWY_UNROLL(4)
    for (int c = 0; c < vectors; ++c) values[c] = tail == 0 ? load(value + c * lanes) : load_tail(value, tail);
    HWY_UNROLL(6)
    for (int64_t r = 0; r < rows; ++r) {
      if (!seen_by_all && (j < first[r] || j >= last[r])) continue;
      const V weight = hn::Set(d, weights[r * block_keys + j]);
      HWY_UNROLL(4)
      for (int c = 0; c < vectors; ++c) sums[r][c] = hn::MulAdd(weight, values[c], sums[r][c]);
    }
  }
}

// sum[r][column ...) = sum * shrink + weights . values, for `vectors` vectors of columns; `tail` elements are in the
// last one when it is not whole.
template <int rows, int vectors, class T>
void value_tile(const Rows& all, int row, const Block& block, const Block* next, int64_t shift, int64_t column,
                int tail) {
  const D d;
  float* out = all.sum + row * all.v_stride() + column;
  const float* weights = all.scores + row * block_keys;
  const int32_t *first = block.first + row, *last = block.last + row;
  V sums[rows][vectors];
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < vectors; ++c)
      sums[r][c] = hn::Mul(hn::LoadU(d, out + r * all.v_stride() + c * lanes), hn::Set(d, all.shrink[row + r]));
  }
  // Keys [from, to) are seen by some row, [begin, end) by all.
  int64_t from = block.end, to = block.begin, begin = block.begin, end = block.end;
  for (int r = 0; r < rows; ++r) {
    from = std::min<int64_t>(from, first[r]);
    to = std::max<int64_t>(to, last[r]);
    begin = std::max<int64_t>(begin, first[r]);
    end = std::min<int64_t>(end, last[r]);
  }
  begin = std::min(begin, to);
  end = std::max(begin, end);
  const int64_t offset = shift + column * int64_t(sizeof(T));
  add_values<false, rows, vectors, T>(block, next, offset, tail, weights, first, last, from, begin, sums);
  add_values<true, rows, vectors, T>(block, next, offset, tail, weights, first, last, begin, end, sums);
  add_values<false, rows, vectors, T>(block, next, offset, tail, weights, first, last, end, to, sums);
  HWY_UNROLL(6)
  for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(4)
    for (int c = 0; c < vectors; ++c) hn::StoreU(sums[r][c], d, out + r * all.v_stride() + c * lanes);
  }
}

template <int rows, class T>
void one_tile_of_values(const Rows& all, int row, const Block& block, const Block* next, int64_t shift) {
  int64_t column = 0;
  for (; column + tile_vectors * lanes <= all.v_dim; column += tile_vectors * lanes)
    value_tile<rows, tile_vectors, T>(all, row, block, next, shift, column, 0);
  for (; column + lanes <= all.v_dim; column += lanes) value_tile<rows, 1, T>(all, row, block, next, shift, column, 0);
  if (column < all.v_dim) value_tile<rows, 1, T>(all, row, block, next, shift, column, int(all.v_dim - column));
}

// Calls f with std::integral_constant<int, rows> for rows in [1, tile_rows].
template <int rows = tile_rows, class F>
HWY_INLINE void with_rows(int count, const F& f) {
  if constexpr (rows == 1) {
    f(std::integral_constant<int, 1>());
  } else {
    if (count == rows) return f(std::integral_constant<int, rows>());
    with_rows<rows - 1>(count, f);
  }
}

template <class T>
void take_block(const Rows& rows, const Block& block, const Block* next, int64_t k_shift, int64_t v_shift,
                const Scoring& scoring) {
  constexpr int64_t size = sizeof(T);
  const int tiles = (rows.count + tile_rows - 1) / tile_rows;
  const auto first_of = [&](int tile) HWY_ATTR { return tile * rows.count / tiles; };
  for (int key = block.begin / tile_keys * tile_keys; key < block.end; key += tile_keys) {
    const Keys<T> keys(block, k_shift, key);
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = first_of(tile);
      for (int j = key + tile; next != nullptr && j < std::min(key + tile_keys, next->end); j += tiles)
        fetch(next->k[j] + k_shift, rows.k_dim * size);
      with_rows(first_of(tile + 1) - row,
                [&](auto count) HWY_ATTR { score_tile<decltype(count)::value, T>(rows, row, keys); });
    }
  }
  for (int r = 0; r < rows.count; ++r)
    scoring.softcap > 0 ? soften<true>(rows, r, block, scoring) : soften<false>(rows, r, block, scoring);
  shrink_totals(rows);
  // An MLA value is part of its key, which is on its way already.
  const bool apart = next != nullptr && next->k[next->begin] + k_shift != next->v[next->begin] + v_shift;
  for (int tile = 0; tile < tiles; ++tile) {
    const int row = first_of(tile);
    const Block* fetched = tile == 0 && apart ? next : nullptr;
    with_rows(first_of(tile + 1) - row, [&](auto count) HWY_ATTR {
      one_tile_of_values<decltype(count)::value, T>(rows, row, block, fetched, v_shift);
    });
  }
}

attention::BlockFunction block_of(DType kv) {
  return kv == DType::bf16 ? take_block<bf16> : take_block<float>;
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {

HWY_EXPORT(block_of);
attention::BlockFunction attention_block(DType kv) {
  return HWY_DYNAMIC_DISPATCH(block_of)(kv);
}

}  // namespace medley::simd
#endif
