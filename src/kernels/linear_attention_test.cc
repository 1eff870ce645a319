// The linear attention ops at every level against recurrences in double, and bits that do not depend on where chunks
// end.
#include "kernels/linear_attention.h"

#include "kernels/test_states.h"

namespace medley {
namespace {

using namespace test;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
double softplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

struct Shape {
  int64_t heads, key_heads, k_dim, v_dim;
  bool per_channel;
};
const std::vector<Shape> shapes = {{1, 1, 1, 1, false}, {4, 2, 16, 16, false}, {6, 3, 5, 33, false},
                                   {3, 3, 20, 7, true}, {2, 2, 64, 64, true},  {2, 1, 3, 130, false},
                                   {1, 1, 33, 65, true}};  // more columns than a tile has

struct DeltaInputs {
  Tensor q, k, v, dt, beta, a, dt_bias;
  DeltaInputs(Rng& rng, int64_t tokens, const Shape& s)
      : q(DType::f32, {tokens, s.key_heads, s.k_dim}, 1),
        k(DType::f32, {tokens, s.key_heads, s.k_dim}, 2),
        v(DType::f32, {tokens, s.heads, s.v_dim}, 3),
        dt(DType::f32, {tokens, s.heads, s.per_channel ? s.k_dim : 1}, 4),
        beta(DType::f32, {tokens, s.heads}, 5),
        a(DType::f32, {s.heads}),
        dt_bias(DType::f32, {s.heads * (s.per_channel ? s.k_dim : 1)}) {
    for (Tensor* tensor : {&q, &k, &v, &dt, &beta, &a, &dt_bias}) tensor->fill(rng);
    for (int64_t h = 0; h < s.heads; ++h) a.as<float>()[h] = -std::exp(a.as<float>()[h] - 2);
  }
  GatedDeltaArgs args(int64_t first, const Rows& rows, const StateSlots& slots, const TensorView& y) const {
    const int64_t n = rows.view.num_tokens;
    const auto part = [&](const Tensor& tensor) { return tensor.view().slice(0, first, n); };
    return {part(q), part(k), part(v),   part(dt), part(beta), a.as<float>(), dt_bias.as<float>(),
            0.3f,    1e-6f,   rows.view, slots,    y};
  }
  GatedDeltaDesc desc(const Shape& s) const { return {s.heads, s.key_heads, s.k_dim, s.v_dim, s.per_channel}; }
};

// One head's state in double, with what bounds the float one's distance from it: each step rounds about k_dim sums of
// magnitude |S| + |v|, and the update (I - beta k k^T) diag(decay) with |k| = 1 never makes an earlier error larger.
struct Reference {
  int64_t k_dim, v_dim;
  std::vector<double> s;
  double largest = 0, steps = 0;

  Reference(int64_t k, int64_t v, const std::vector<float>* before, int64_t offset)
      : k_dim(k), v_dim(v), s(size_t(k * v), 0.0) {
    for (size_t i = 0; before != nullptr && i < s.size(); ++i) s[i] = (*before)[size_t(offset) + i];
  }
  double& at(int64_t i, int64_t j) { return s[size_t(i * v_dim + j)]; }
  double column(const std::vector<double>& k, int64_t j) {
    double sum = 0;
    for (int64_t i = 0; i < k_dim; ++i) sum += at(i, j) * k[size_t(i)];
    return sum;
  }
  void note(double v_norm) {
    double squares = 0;
    for (double value : s) squares += value * value;
    largest = std::max(largest, std::sqrt(squares) + v_norm);
    ++steps;
  }
  double tolerance() const { return (steps + 1) * (double(k_dim) + 16) * f32_unit * largest; }
};

std::vector<double> unit(const TensorView& x, int64_t t, int64_t head, double scale) {
  std::vector<double> y;
  double squares = 0;
  for (int64_t i = 0; i < x.size(2); ++i) squares += get(x, {t, head, i}) * get(x, {t, head, i});
  for (int64_t i = 0; i < x.size(2); ++i)
    y.push_back(get(x, {t, head, i}) * scale / std::sqrt(squares + double(1e-6f)));
  return y;
}

TEST(GatedDelta, EveryLevelFollowsTheRecurrence) {
  Rng rng(1);
  Machine machine(2);
  for (const Shape& shape : shapes) {
    const Rows rows(step_rows);
    const DeltaInputs in(rng, rows.view.num_tokens, shape);
    for (const auto& kernel : runnable(gated_delta_op(), in.desc(shape))) {
      SCOPED_TRACE(fmt::format("{} {}", kernel.name(), in.desc(shape).describe()));
      States states(shape.heads * shape.k_dim * shape.v_dim, 5);
      states.fill(rng);
      std::vector<std::vector<float>> before;
      for (int64_t s = 0; s < 5; ++s) before.push_back(states.copy(s));
      Tensor y(DType::f32, {rows.view.num_tokens, shape.heads, shape.v_dim}, 1);
      launch(gated_delta_op(), *kernel, in.args(0, rows, states.view(step_reads, step_writes), y), machine.context);
      ASSERT_TRUE(y.complete());
      for (size_t r = 0; r < step_rows.size(); ++r)
        for (int64_t h = 0; h < shape.heads; ++h) {
          const int64_t offset = h * shape.k_dim * shape.v_dim, key_head = h / (shape.heads / shape.key_heads);
          Reference s(shape.k_dim, shape.v_dim, step_reads[r] < 0 ? nullptr : &before[size_t(step_reads[r])], offset);
          s.note(0);
          for (int64_t t = rows.first(int64_t(r)); t < rows.first(int64_t(r)) + step_rows[r].fresh; ++t) {
            const auto q = unit(in.q, t, key_head, double(0.3f)), k = unit(in.k, t, key_head, 1);
            const int64_t decays = shape.per_channel ? shape.k_dim : 1;
            for (int64_t i = 0; i < shape.k_dim; ++i) {
              const int64_t d = shape.per_channel ? i : 0;
              const double decay =
                  std::exp(get(in.a, {h}) * softplus(get(in.dt, {t, h, d}) + get(in.dt_bias, {h * decays + d})));
              for (int64_t j = 0; j < shape.v_dim; ++j) s.at(i, j) *= decay;
            }
            double squares = 0;
            for (int64_t j = 0; j < shape.v_dim; ++j) {
              const double v = get(in.v, {t, h, j});
              const double change = (v - s.column(k, j)) * sigmoid(get(in.beta, {t, h}));
              for (int64_t i = 0; i < shape.k_dim; ++i) s.at(i, j) += k[size_t(i)] * change;
              squares += v * v;
            }
            s.note(std::sqrt(squares));
            for (int64_t j = 0; j < shape.v_dim; ++j)
              ASSERT_NEAR(get(y, {t, h, j}), s.column(q, j), s.tolerance()) << "row " << r << " token " << t;
          }
          for (size_t i = 0; step_writes[r] >= 0 && i < s.s.size(); ++i)
            ASSERT_NEAR(states.at(step_writes[r])[size_t(offset) + i], s.s[i], s.tolerance());
        }
      ASSERT_EQ(states.copy(2), before[2]);  // read only
    }
  }
}

TEST(GatedDelta, ChunksMayEndAnywhere) {
  Rng rng(2);
  for (const Shape& shape : shapes) {
    const DeltaInputs in(rng, 60, shape);
    for (const auto& kernel : runnable(gated_delta_op(), in.desc(shape))) {
      SCOPED_TRACE(kernel.name());
      expect_chunking_is_free(
          rng, 60, shape.heads * shape.k_dim * shape.v_dim, {60, shape.heads, shape.v_dim},
          [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
            launch(gated_delta_op(), *kernel, in.args(first, rows, slots, y), machine.context);
          });
    }
  }
}

// q, k and v of a head side by side, as one projection gives them.
struct LightningInputs {
  Tensor qkv, decay;
  int64_t dim;
  LightningInputs(Rng& rng, int64_t tokens, int64_t heads, int64_t dim_in)
      : qkv(DType::f32, {tokens, heads, 3 * dim_in}, 1), decay(DType::f32, {heads}), dim(dim_in) {
    qkv.fill(rng);
    for (int64_t h = 0; h < heads; ++h) decay.as<float>()[h] = 1 - 0.3f / float(h + 1);
  }
  LightningArgs args(int64_t first, const Rows& rows, const StateSlots& slots, const TensorView& y) const {
    const TensorView all = qkv.view().slice(0, first, rows.view.num_tokens);
    return {all.slice(2, 0, dim),
            all.slice(2, dim, dim),
            all.slice(2, 2 * dim, dim),
            decay.as<float>(),
            {},
            rows.view,
            slots,
            y};
  }
};

TEST(Lightning, EveryLevelFollowsTheRecurrence) {
  Rng rng(3);
  Machine machine(2);
  for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{1, 1}, {4, 16}, {3, 33}, {2, 64}})
    for (const auto& kernel : runnable(lightning_op(), {heads, dim, dim})) {
      SCOPED_TRACE(fmt::format("{} {} heads of {}", kernel.name(), heads, dim));
      const Rows rows(step_rows);
      const LightningInputs in(rng, rows.view.num_tokens, heads, dim);
      States states(heads * dim * dim, 5);
      states.fill(rng);
      std::vector<std::vector<float>> before;
      for (int64_t s = 0; s < 5; ++s) before.push_back(states.copy(s));
      Tensor y(DType::f32, {rows.view.num_tokens, heads, dim}, 1);
      launch(lightning_op(), *kernel, in.args(0, rows, states.view(step_reads, step_writes), y), machine.context);
      ASSERT_TRUE(y.complete());
      for (size_t r = 0; r < step_rows.size(); ++r)
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t j = 0; j < dim; ++j) {
            std::vector<double> s(size_t(dim), 0.0), size;
            for (int64_t i = 0; i < dim && step_reads[r] >= 0; ++i)
              s[size_t(i)] = before[size_t(step_reads[r])][size_t((h * dim + i) * dim + j)];
            for (double value : s) size.push_back(std::abs(value));
            double depth = 1;
            for (int64_t t = rows.first(int64_t(r)); t < rows.first(int64_t(r)) + step_rows[r].fresh; ++t, ++depth) {
              double sum = 0, absolute = 0;
              for (int64_t i = 0; i < dim; ++i) {
                const double input = get(in.qkv, {t, h, dim + i}) * get(in.qkv, {t, h, 2 * dim + j});
                s[size_t(i)] = get(in.decay, {h}) * s[size_t(i)] + input;
                size[size_t(i)] = get(in.decay, {h}) * size[size_t(i)] + std::abs(input);
                sum += s[size_t(i)] * get(in.qkv, {t, h, i});
                absolute += size[size_t(i)] * std::abs(get(in.qkv, {t, h, i}));
              }
              ASSERT_NEAR(get(y, {t, h, j}), sum, (3 * depth + double(dim) + 2) * f32_unit * absolute)
                  << "row " << r << " token " << t;
            }
            for (int64_t i = 0; step_writes[r] >= 0 && i < dim; ++i)
              ASSERT_NEAR(states.at(step_writes[r])[(h * dim + i) * dim + j], s[size_t(i)],
                          3 * depth * f32_unit * size[size_t(i)]);
          }
      ASSERT_EQ(states.copy(2), before[2]);
    }
}

TEST(Lightning, ChunksMayEndAnywhere) {
  Rng rng(4);
  for (const auto& kernel : runnable(lightning_op(), {3, 20, 20})) {
    SCOPED_TRACE(kernel.name());
    const LightningInputs in(rng, 60, 3, 20);
    expect_chunking_is_free(
        rng, 60, 3 * 20 * 20, {60, 3, 20},
        [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
          launch(lightning_op(), *kernel, in.args(first, rows, slots, y), machine.context);
        });
  }
}

// Tables that are no powers of anything, so that each entry's use shows.
struct BlockInputs : LightningInputs {
  int64_t heads, block;
  Tensor query, key, diagonal, block_decay;
  BlockInputs(Rng& rng, int64_t tokens, int64_t heads_in, int64_t dim_in, int64_t block_in)
      : LightningInputs(rng, tokens, heads_in, dim_in),
        heads(heads_in),
        block(block_in),
        query(DType::f32, {heads, block}),
        key(DType::f32, {heads, block}),
        diagonal(DType::f32, {heads, block, block}),
        block_decay(DType::f32, {heads}) {
    for (Tensor* tensor : {&query, &key, &diagonal, &block_decay}) tensor->fill(rng, 0.3f, 0.5f);
  }
  LightningArgs args(int64_t first, const Rows& rows, const StateSlots& slots, const TensorView& y) const {
    LightningArgs args = LightningInputs::args(first, rows, slots, y);
    args.tables = {block, query.as<float>(), key.as<float>(), diagonal.as<float>(), block_decay.as<float>()};
    return args;
  }
};

TEST(LightningByBlocks, EveryLevelFollowsTheDefinition) {
  Rng rng(5);
  Machine machine(2);
  constexpr int64_t heads = 3, dim = 11, block = 5, tokens = 23;
  for (const auto& kernel : runnable(lightning_op(), {heads, dim, dim, block})) {
    SCOPED_TRACE(kernel.name());
    const BlockInputs in(rng, tokens, heads, dim, block);
    const auto q = [&](int64_t t, int64_t h, int64_t i) { return get(in.qkv, {t, h, i}); };
    const auto k = [&](int64_t t, int64_t h, int64_t i) { return get(in.qkv, {t, h, dim + i}); };
    const auto v = [&](int64_t t, int64_t h, int64_t j) { return get(in.qkv, {t, h, 2 * dim + j}); };
    States states(heads * (dim * dim + block * 2 * dim), 1);
    Tensor y(DType::f32, {tokens, heads, dim}, 1);
    launch(lightning_op(), *kernel, in.args(0, Rows({{0, tokens}}), states.view({-1}, {0}), y), machine.context);
    ASSERT_TRUE(y.complete());
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t j = 0; j < dim; ++j) {
          // The weight of every earlier token, from the tables alone.
          double sum = 0, absolute = 0;
          for (int64_t s = 0; s <= t; ++s) {
            double weight = get(in.diagonal, {h, t % block, s % block});
            if (s / block < t / block) {
              weight = get(in.query, {h, t % block}) * get(in.key, {h, s % block});
              for (int64_t b = s / block + 1; b < t / block; ++b) weight *= get(in.block_decay, {h});
            }
            for (int64_t i = 0; i < dim; ++i) {
              const double term = weight * q(t, h, i) * k(s, h, i) * v(s, h, j);
              sum += term;
              absolute += std::abs(term);
            }
          }
          ASSERT_NEAR(get(y, {t, h, j}), sum, double(tokens + dim + 8) * f32_unit * absolute) << h << " " << t;
        }
  }
}

TEST(LightningByBlocks, ChunksMayEndAnywhere) {
  Rng rng(6);
  for (const auto& kernel : runnable(lightning_op(), {3, 20, 20, 7})) {
    SCOPED_TRACE(kernel.name());
    const BlockInputs in(rng, 60, 3, 20, 7);
    expect_chunking_is_free(
        rng, 60, 3 * (20 * 20 + 7 * 40), {60, 3, 20},
        [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
          launch(lightning_op(), *kernel, in.args(first, rows, slots, y), machine.context);
        });
  }
}

}  // namespace
}  // namespace medley
