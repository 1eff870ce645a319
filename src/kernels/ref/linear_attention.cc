// The recurrences in token order, one head at a time: the plain meaning, and the path whose result no chunking can
// change. The inner loops run along v_dim, where the state is contiguous and no sum depends on vector width.
#include "kernels/linear_attention.h"

#include <algorithm>
#include <vector>

#include "kernels/ref/scalar.h"
#include "kernels/state_rows.h"

namespace medley::ref {
namespace {

std::vector<float> state_before(const StateRow& row, int64_t head, int64_t size) {
  std::vector<float> state(size_t(size), 0.0f);
  if (row.read != nullptr) std::copy_n(row.read + head * size, size, state.begin());
  return state;
}

void keep_state(const StateRow& row, int64_t head, const std::vector<float>& state) {
  if (row.write != nullptr) std::copy(state.begin(), state.end(), row.write + head * int64_t(state.size()));
}

const float* head_of(const TensorView& x, int64_t token, int64_t head) {
  return x.row<float>(token) + head * x.strides[1];
}

// sum = S^T k, S [k_dim, v_dim].
void weighted_rows(const float* state, const float* k, int64_t k_dim, int64_t v_dim, float* sum) {
  std::fill_n(sum, v_dim, 0.0f);
  for (int64_t i = 0; i < k_dim; ++i)
    for (int64_t j = 0; j < v_dim; ++j) sum[j] += state[i * v_dim + j] * k[i];
}

void normalized(const float* x, int64_t n, float eps, float scale, float* y) {
  const float inverse = scale / std::sqrt(dot(x, x, n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * inverse;
}

void delta_head(const GatedDeltaArgs& a, const StateRow& row, int64_t head) {
  const int64_t k_dim = a.k.size(2), v_dim = a.v.size(2), decays = a.dt.size(2);
  const int64_t key_head = head / (a.v.size(1) / a.k.size(1));
  std::vector<float> state = state_before(row, head, k_dim * v_dim);
  std::vector<float> q(static_cast<size_t>(k_dim)), k(static_cast<size_t>(k_dim)), change(static_cast<size_t>(v_dim));
  for (int64_t t = row.begin; t < row.end; ++t) {
    normalized(head_of(a.q, t, key_head), k_dim, a.l2_eps, a.scale, q.data());
    normalized(head_of(a.k, t, key_head), k_dim, a.l2_eps, 1, k.data());
    const float* dt = head_of(a.dt, t, head);
    float decay = 1;
    for (int64_t i = 0; i < k_dim; ++i) {
      if (i < decays) decay = std::exp(a.a[head] * softplus(dt[i] + a.dt_bias[head * decays + i]));
      for (int64_t j = 0; j < v_dim; ++j) state[size_t(i * v_dim + j)] *= decay;
    }
    weighted_rows(state.data(), k.data(), k_dim, v_dim, change.data());
    const float beta = sigmoid(a.beta.row<float>(t)[head]);
    const float* v = head_of(a.v, t, head);
    for (int64_t j = 0; j < v_dim; ++j) change[size_t(j)] = (v[j] - change[size_t(j)]) * beta;
    for (int64_t i = 0; i < k_dim; ++i)
      for (int64_t j = 0; j < v_dim; ++j) state[size_t(i * v_dim + j)] += k[size_t(i)] * change[size_t(j)];
    weighted_rows(state.data(), q.data(), k_dim, v_dim, a.y.row<float>(t) + head * a.y.strides[1]);
  }
  keep_state(row, head, state);
}

void lightning_head(const LightningArgs& a, const StateRow& row, int64_t head) {
  const int64_t k_dim = a.k.size(2), v_dim = a.v.size(2);
  const float decay = a.decay[head];
  std::vector<float> state = state_before(row, head, k_dim * v_dim);
  for (int64_t t = row.begin; t < row.end; ++t) {
    const float* k = head_of(a.k, t, head);
    const float* v = head_of(a.v, t, head);
    for (int64_t i = 0; i < k_dim; ++i)
      for (int64_t j = 0; j < v_dim; ++j) {
        float& s = state[size_t(i * v_dim + j)];
        s = decay * s + k[i] * v[j];
      }
    weighted_rows(state.data(), head_of(a.q, t, head), k_dim, v_dim, a.y.row<float>(t) + head * a.y.strides[1]);
  }
  keep_state(row, head, state);
}

// One head's block: S where it began, and its keys and values so far.
struct Block {
  int64_t k_dim, v_dim, size;
  std::vector<float> state;
  float* s() { return state.data(); }
  float* k(int64_t place) { return state.data() + k_dim * v_dim + place * k_dim; }
  float* v(int64_t place) { return state.data() + k_dim * v_dim + size * k_dim + place * v_dim; }

  // S of the next block.
  void finish(float decay, const float* key) {
    for (int64_t i = 0; i < k_dim; ++i)
      for (int64_t j = 0; j < v_dim; ++j) {
        float sum = 0;
        for (int64_t place = 0; place < size; ++place) sum += key[place] * k(place)[i] * v(place)[j];
        s()[i * v_dim + j] = decay * s()[i * v_dim + j] + sum;
      }
  }
};

void lightning_head_by_blocks(const LightningArgs& a, const StateRow& row, int64_t position, int64_t head) {
  const int64_t k_dim = a.k.size(2), v_dim = a.v.size(2), size = a.tables.block;
  Block block{k_dim, v_dim, size, state_before(row, head, k_dim * v_dim + size * (k_dim + v_dim))};
  const float* diagonal = a.tables.diagonal + head * size * size;
  for (int64_t t = row.begin; t < row.end; ++t, ++position) {
    const int64_t place = position % size;
    if (place == 0 && position > 0) block.finish(a.tables.block_decay[head], a.tables.key + head * size);
    std::copy_n(head_of(a.k, t, head), k_dim, block.k(place));
    std::copy_n(head_of(a.v, t, head), v_dim, block.v(place));
    const float* q = head_of(a.q, t, head);
    float* y = a.y.row<float>(t) + head * a.y.strides[1];
    weighted_rows(block.s(), q, k_dim, v_dim, y);
    for (int64_t j = 0; j < v_dim; ++j) y[j] *= a.tables.query[head * size + place];
    for (int64_t earlier = 0; earlier <= place; ++earlier) {
      const float score = diagonal[place * size + earlier] * dot(q, block.k(earlier), k_dim);
      for (int64_t j = 0; j < v_dim; ++j) y[j] += score * block.v(earlier)[j];
    }
  }
  keep_state(row, head, block.state);
}

void run_delta(const GatedDeltaArgs& a, ExecContext& context) {
  const int64_t heads = a.v.size(1);
  context.threads.parallel_for(a.rows.num_rows * heads, [&](int64_t task, int) {
    delta_head(a, state_row(a.rows, a.state, task / heads), task % heads);
  });
}

void run_lightning(const LightningArgs& a, ExecContext& context) {
  const int64_t heads = a.v.size(1);
  context.threads.parallel_for(a.rows.num_rows * heads, [&](int64_t task, int) {
    const StateRow row = state_row(a.rows, a.state, task / heads);
    if (a.tables.block == 0) {
      lightning_head(a, row, task % heads);
    } else {
      lightning_head_by_blocks(a, row, a.rows.computed.as<int32_t>()[task / heads], task % heads);
    }
  });
}

}  // namespace

extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta{"ref.gated_delta_scan", Level::ref, any,
                                                                        run_delta};
extern const Implementation<LightningDesc, LightningArgs> lightning{"ref.lightning_scan", Level::ref, any,
                                                                    run_lightning};

}  // namespace medley::ref
