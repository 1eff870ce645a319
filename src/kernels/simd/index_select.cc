// Index scores through Highway: a key's row is taken to float32 once for all heads, four heads at a time; a score is a
// sum over the heads in order. Then the best by selection, not by sorting all.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/index_select.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/simd/vector-inl.h"
#include "kernels/sparse_attention.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

// One query's heads, padded with zeros to whole vectors and whole groups of four.
struct Heads {
  float *q, *weights, *key, *scores;  // [heads, dim], [heads], [dim], [heads]
  int64_t heads, dim;                 // padded

  static int64_t floats(int64_t heads, int64_t dim) { return (heads + 1) * dim + 2 * heads; }
  Heads(float* memory, int64_t heads_in, int64_t dim_in)
      : q(memory),
        weights(q + heads_in * dim_in),
        key(weights + heads_in),
        scores(key + dim_in),
        heads(heads_in),
        dim(dim_in) {}

  HWY_INLINE void load_query(const IndexSelectArgs& a, int64_t token) const {
    const int64_t real_heads = a.q.size(1), real_dim = a.q.size(2);
    std::fill_n(q, heads * dim, 0.0f);
    for (int64_t h = 0; h < real_heads; ++h)
      std::copy_n(a.q.row<float>(token) + h * a.q.strides[1], real_dim, q + h * dim);
    std::fill(std::copy_n(a.weights.row<float>(token), real_heads, weights), weights + heads, 0.0f);
  }

  HWY_INLINE float score() const {
    const D d;
    for (int64_t h = 0; h < heads; h += 4) {
      const float* rows = q + h * dim;
      V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
      for (int64_t i = 0; i < dim; i += lanes) {
        const V k = load(key + i);
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) sums[j] = hn::MulAdd(load(rows + j * dim + i), k, sums[j]);
      }
      store_sums(sums, scores + h);
    }
    float sum = 0;
    for (int64_t h = 0; h < heads; ++h) sum += weights[h] * std::max(scores[h], 0.0f);
    return sum;
  }
};

// Scores of the row's keys [begin, end).
template <class T>
void score_keys(const IndexSelectArgs& a, const Heads& heads, int64_t row, int64_t begin, int64_t end, float* scores) {
  const int32_t* blocks = a.cache.block_table.row<int32_t>(row);
  const int64_t dim = a.q.size(2);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t place = blocks[p / a.cache.tokens_per_block] + p % a.cache.tokens_per_block;
    const T* from = reinterpret_cast<const T*>(a.cache.base + place * a.cache.row_bytes);
    for (int64_t i = 0; i < dim; i += lanes) store(load_at(from, i, dim), heads.key + i);
    scores[p] = heads.score();
  }
}

// The `count` best of `scores`, ties to the lower position, in ascending order.
void take_best(const std::vector<float>& scores, int64_t count, int32_t* selected) {
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  if (count < int64_t(scores.size())) {
    std::nth_element(order.begin(), order.begin() + count, order.end(), [&](int32_t x, int32_t y) {
      return scores[size_t(x)] != scores[size_t(y)] ? scores[size_t(x)] > scores[size_t(y)] : x < y;
    });
    std::sort(order.begin(), order.begin() + count);
  }
  std::copy_n(order.begin(), count, selected);
}

void run_select(const IndexSelectArgs& a, ExecContext& context) {
  constexpr int64_t task_keys = 512;  // a lone decode keeps all threads busy
  const Workspace::Scope scope(context.workspace);
  const int64_t padded_heads = (a.q.size(1) + 3) / 4 * 4, dim = round_up(a.q.size(2));
  const TensorView memory =
      context.workspace.alloc(DType::f32, {context.threads.size(), Heads::floats(padded_heads, dim)});
  std::vector<float> scores;
  for (int64_t r = 0; r < a.rows.num_rows; ++r) {
    const int32_t* offsets = a.rows.row_offsets.as<int32_t>();
    for (int64_t token = offsets[r]; token < offsets[r + 1]; ++token) {
      const int64_t keys = a.rows.computed.as<int32_t>()[r] + token - offsets[r] + 1, count = std::min(keys, a.top_k);
      int32_t* selected = a.selected.row<int32_t>(token);
      std::fill(selected + count, selected + a.selected.size(1), -1);
      scores.assign(size_t(keys), 0.0f);
      if (keys > count)
        context.threads.parallel_for((keys + task_keys - 1) / task_keys, [&](int64_t task, int worker) {
          const Heads heads(memory.row<float>(worker), padded_heads, dim);
          heads.load_query(a, token);
          const int64_t begin = task * task_keys, end = std::min(begin + task_keys, keys);
          a.cache.dtype == DType::bf16 ? score_keys<bf16>(a, heads, r, begin, end, scores.data())
                                       : score_keys<float>(a, heads, r, begin, end, scores.data());
        });
      take_best(scores, count, selected);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {
namespace {

HWY_EXPORT(run_select);

void select(const IndexSelectArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_select)(a, context);
}

std::string supports_select(const IndexSelectDesc& desc) {
  if (desc.later_ties) return "ties go to the earlier key";
  return desc.cache == DType::f32 || desc.cache == DType::bf16 ? "" : "takes caches of f32 or bf16";
}

}  // namespace

extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select{"simd.index_select", Level::simd,
                                                                           supports_select, select};

}  // namespace medley::simd
#endif
