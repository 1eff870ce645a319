// The recurrences of linear attention through Highway, in token order as ref/ has them. The columns of a head's state
// (along v_dim) never meet, so a task takes four vectors of them through all of a row's tokens, with its part of the
// state in the first-level cache. Sums run over k_dim in order: no bit depends on chunks, rows or threads.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/linear_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/linear_attention.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/vector-inl.h"
#include "kernels/state_rows.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

constexpr int tile_vectors = 4;
constexpr int64_t tile = tile_vectors * lanes;  // columns of one task: 32 KB of state at k_dim 128 on AVX-512

// Columns [first, first + count) of one head's state, rows of `tile` floats; what is after `count` is zero.
struct StateTile {
  float* data;
  int64_t k_dim, v_dim, first, count;

  HWY_INLINE void read(const float* head) const {
    for (int64_t i = 0; i < k_dim; ++i)
      for (int64_t j = 0; j < tile; j += lanes)
        store(head != nullptr ? load_at(head + i * v_dim + first, j, count) : hn::Zero(D()), data + i * tile + j);
  }
  HWY_INLINE void write(float* head) const {
    if (head == nullptr) return;
    for (int64_t i = 0; i < k_dim; ++i)
      for (int64_t j = 0; j < tile; j += lanes) store_at(load(data + i * tile + j), head + i * v_dim + first, j, count);
  }
};

HWY_INLINE const float* head_of(const TensorView& x, int64_t token, int64_t head) {
  return x.row<float>(token) + head * x.strides[1];
}

// y = scale * x / sqrt(sum(x^2) + eps).
HWY_INLINE void unit_length(const float* x, int64_t n, float eps, float scale, float* y) {
  V squares = hn::Zero(D());
  for (int64_t i = 0; i < n; i += lanes) {
    const V part = load_at(x, i, n);
    squares = hn::MulAdd(part, part, squares);
  }
  const V factor = hn::Set(D(), scale / std::sqrt(sum_of_lanes(squares) + eps));
  for (int64_t i = 0; i < n; i += lanes) store_at(hn::Mul(load_at(x, i, n), factor), y, i, n);
}

// decay[i] = exp(a * softplus(dt[i] + bias[i])).
HWY_INLINE void decays(const float* dt, const float* bias, float a, int64_t n, float* decay) {
  const D d;
  for (int64_t i = 0; i < n; i += lanes) {
    const V step = softplus(d, hn::Add(load_at(dt, i, n), load_at(bias, i, n)));
    store_at(exp(d, hn::Mul(hn::Set(d, a), step)), decay, i, n);
  }
}

// S = decay S, and sum = S^T k. With one decay for the head the product is left to the second pass.
template <bool per_channel>
HWY_INLINE void decayed_sums(const StateTile& s, const float* decay, const float* k, V (&sum)[tile_vectors]) {
  const D d;
  for (int64_t i = 0; i < s.k_dim; ++i) {
    const V weight = hn::Set(d, k[i]);
    float* row = s.data + i * tile;
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) {
      V value = load(row + j * lanes);
      if constexpr (per_channel) {
        value = hn::Mul(hn::Set(d, decay[i]), value);
        store(value, row + j * lanes);
      }
      sum[j] = hn::MulAdd(value, weight, sum[j]);
    }
  }
  if constexpr (!per_channel) {
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) sum[j] = hn::Mul(hn::Set(d, decay[0]), sum[j]);
  }
}

// S = decay S + k change^T (the decay of 1 is left out), and y = S^T q.
template <bool decayed>
HWY_INLINE void updated_sums(const StateTile& s, float decay, const float* k, const V (&change)[tile_vectors],
                             const float* q, V (&y)[tile_vectors]) {
  const D d;
  const V factor = hn::Set(d, decay);
  for (int64_t i = 0; i < s.k_dim; ++i) {
    const V key = hn::Set(d, k[i]), query = hn::Set(d, q[i]);
    float* row = s.data + i * tile;
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) {
      V value = load(row + j * lanes);
      if constexpr (decayed) value = hn::Mul(factor, value);
      value = hn::MulAdd(key, change[j], value);
      store(value, row + j * lanes);
      y[j] = hn::MulAdd(value, query, y[j]);
    }
  }
}

template <bool per_channel>
void delta_tile(const GatedDeltaArgs& a, const StateRow& row, int64_t head, int64_t first, float* memory) {
  const D d;
  const int64_t k_dim = a.k.size(2), v_dim = a.v.size(2), key_head = head / (a.v.size(1) / a.k.size(1));
  const int64_t offset = head * k_dim * v_dim, width = a.dt.size(2);
  const StateTile s{memory, k_dim, v_dim, first, std::min(tile, v_dim - first)};
  float *q = memory + k_dim * tile, *k = q + k_dim, *decay = k + k_dim;
  s.read(row.read != nullptr ? row.read + offset : nullptr);
  for (int64_t t = row.begin; t < row.end; ++t) {
    unit_length(head_of(a.q, t, key_head), k_dim, a.l2_eps, a.scale, q);
    unit_length(head_of(a.k, t, key_head), k_dim, a.l2_eps, 1, k);
    decays(head_of(a.dt, t, head), a.dt_bias + head * width, a.a[head], width, decay);
    V change[tile_vectors] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    decayed_sums<per_channel>(s, decay, k, change);
    const V beta = sigmoid(d, hn::Set(d, a.beta.row<float>(t)[head]));
    const float* v = head_of(a.v, t, head) + first;
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j)
      change[j] = hn::Mul(hn::Sub(load_at(v, j * lanes, s.count), change[j]), beta);
    V y[tile_vectors] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    updated_sums<!per_channel>(s, decay[0], k, change, q, y);
    float* out = a.y.row<float>(t) + head * a.y.strides[1] + first;
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) store_at(y[j], out, j * lanes, s.count);
  }
  s.write(row.write != nullptr ? row.write + offset : nullptr);
}

void lightning_tile(const LightningArgs& a, const StateRow& row, int64_t head, int64_t first, float* memory) {
  const D d;
  const int64_t k_dim = a.k.size(2), v_dim = a.v.size(2), offset = head * k_dim * v_dim;
  const StateTile s{memory, k_dim, v_dim, first, std::min(tile, v_dim - first)};
  s.read(row.read != nullptr ? row.read + offset : nullptr);
  for (int64_t t = row.begin; t < row.end; ++t) {
    const float* v = head_of(a.v, t, head) + first;
    V values[tile_vectors], y[tile_vectors];
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) {
      values[j] = load_at(v, j * lanes, s.count);
      y[j] = hn::Zero(d);
    }
    updated_sums<true>(s, a.decay[head], head_of(a.k, t, head), values, head_of(a.q, t, head), y);
    float* out = a.y.row<float>(t) + head * a.y.strides[1] + first;
    HWY_UNROLL(4)
    for (int j = 0; j < tile_vectors; ++j) store_at(y[j], out, j * lanes, s.count);
  }
  s.write(row.write != nullptr ? row.write + offset : nullptr);
}

// Tasks over rows, heads and tiles of columns; each worker with `floats` of memory.
template <class F>
void for_tiles(int64_t rows, int64_t heads, int64_t v_dim, int64_t floats, ExecContext& context, const F& run) {
  const Workspace::Scope scope(context.workspace);
  const int64_t tiles = (v_dim + tile - 1) / tile;
  const TensorView memory = context.workspace.alloc(DType::f32, {context.threads.size(), floats});
  context.threads.parallel_for(rows * heads * tiles, [&](int64_t task, int worker) {
    run(task / tiles / heads, task / tiles % heads, task % tiles * tile, memory.row<float>(worker));
  });
}

void run_delta(const GatedDeltaArgs& a, ExecContext& context) {
  const int64_t k_dim = a.k.size(2), width = a.dt.size(2);
  const auto run = [&](int64_t row, int64_t head, int64_t first, float* memory) {
    const StateRow at = state_row(a.rows, a.state, row);
    width > 1 ? delta_tile<true>(a, at, head, first, memory) : delta_tile<false>(a, at, head, first, memory);
  };
  for_tiles(a.rows.num_rows, a.v.size(1), a.v.size(2), k_dim * tile + 3 * k_dim, context, run);
}

void run_lightning(const LightningArgs& a, ExecContext& context) {
  const auto run = [&](int64_t row, int64_t head, int64_t first, float* memory) {
    lightning_tile(a, state_row(a.rows, a.state, row), head, first, memory);
  };
  for_tiles(a.rows.num_rows, a.v.size(1), a.v.size(2), a.k.size(2) * tile, context, run);
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {
namespace {

HWY_EXPORT(run_delta);
HWY_EXPORT(run_lightning);

void delta(const GatedDeltaArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_delta)(a, context);
}
void lightning_scan(const LightningArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_lightning)(a, context);
}

std::string supports_delta(const GatedDeltaDesc&) {
  return {};
}
std::string supports_lightning(const LightningDesc& desc) {
  return desc.block == 0 ? "" : "takes no tables of decays";
}

}  // namespace

extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta{"simd.gated_delta_scan", Level::simd,
                                                                        supports_delta, delta};
extern const Implementation<LightningDesc, LightningArgs> lightning{"simd.lightning_scan", Level::simd,
                                                                    supports_lightning, lightning_scan};

}  // namespace medley::simd
#endif
