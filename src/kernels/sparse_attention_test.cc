// Index selection and sparse attention against their definitions in double; bits that do not depend on the chunking,
// the company or the threads.
#include "kernels/sparse_attention.h"

#include "kernels/attention.h"
#include "kernels/test_cache.h"

namespace medley {
namespace {

using namespace test;

const std::vector<RowSpec> ragged{{0, 1}, {0, 9}, {23, 1}, {40, 12}, {3, 2}};

TEST(IndexSelect, TakesTheBestKeysInAscendingOrder) {
  Rng rng(1);
  Machine machine(2);
  const Rows rows(ragged);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [heads, dim] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 12}, {4, 64}})
      for (const auto& [top_k, later_ties] :
           std::vector<std::pair<int64_t, bool>>{{1, false}, {6, false}, {6, true}, {200, false}})
        for (const auto& kernel : runnable(index_select_op(), {heads, dim, dtype, later_ties})) {
          SCOPED_TRACE(fmt::format("{} {} heads of {}, top {}{}", kernel.name(), heads, dim, top_k,
                                   later_ties ? ", later ties" : ""));
          const Cache keys(rng, rows, dtype, dim, 4, 3);
          const int64_t tokens = rows.view.num_tokens, width = std::min(top_k, rows.view.max_context) + 2;
          Tensor q(DType::f32, {tokens, heads, dim}, 1), weights(DType::f32, {tokens, heads}, 2),
              selected(DType::i32, {tokens, width}, 1);
          q.fill(rng);
          weights.fill(rng);
          launch(index_select_op(), *kernel, {q, weights, keys.view, rows.view, top_k, selected, later_ties},
                 machine.context);
          for (int64_t r = 0; r < rows.view.num_rows; ++r)
            for (int64_t i = 0; i < rows.specs[size_t(r)].fresh; ++i) {
              const int64_t token = rows.first(r) + i, context = rows.specs[size_t(r)].computed + i + 1;
              std::vector<double> scores;
              double worst = 0;
              for (int64_t p = 0; p < context; ++p) {
                double score = 0, absolute = 0;
                for (int64_t h = 0; h < heads; ++h) {
                  double product = 0, size = 0;
                  for (int64_t d = 0; d < dim; ++d) {
                    product += get(q, {token, h, d}) * keys.at(r, p, d);
                    size += std::abs(get(q, {token, h, d}) * keys.at(r, p, d));
                  }
                  score += get(weights, {token, h}) * std::max(product, 0.0);
                  absolute += std::abs(get(weights, {token, h})) * size;
                }
                scores.push_back(score);
                worst = std::max(worst, absolute);
              }
              const int32_t* got = selected.view().row<int32_t>(token);
              const int64_t count = std::min(context, top_k);
              std::vector<bool> in(static_cast<size_t>(context), false);
              for (int64_t k = 0; k < width; ++k) {
                if (k >= count) {
                  ASSERT_EQ(got[k], -1);
                  continue;
                }
                ASSERT_GT(got[k], k == 0 ? -1 : got[k - 1]);
                ASSERT_LT(got[k], context);
                in[size_t(got[k])] = true;
              }
              // No key left out scores more than one taken, beyond the roundings of a sum of heads x dim products;
              // equal scores (no head above zero) go to the lower position, or to the higher.
              const double slack = 2 * double(heads * dim + 4) * f32_unit * worst;
              for (size_t a = 0; a < in.size(); ++a)
                for (size_t b = 0; b < in.size(); ++b)
                  if (in[a] && !in[b]) {
                    ASSERT_GE(scores[a], scores[b] - slack) << a << " " << b;
                    ASSERT_FALSE(scores[a] == 0 && scores[b] == 0 && (later_ties ? a < b : a > b)) << a << " " << b;
                  }
            }
        }
}

struct Shape {
  int64_t heads, kv_heads, k_dim, v_dim, k_offset, v_offset, elements;
};
const std::vector<Shape> shapes{{3, 1, 28, 20, 0, 0, 28}, {6, 3, 12, 12, 0, 36, 72}, {1, 1, 1, 1, 0, 0, 1}};

// Every position up to the query's own that `keep` takes.
template <class Keep>
Tensor select(const Rows& rows, Keep keep) {
  Tensor selected(DType::i32, {rows.view.num_tokens, rows.view.max_context});
  for (int64_t r = 0; r < rows.view.num_rows; ++r)
    for (int64_t i = 0; i < rows.specs[size_t(r)].fresh; ++i) {
      int32_t* to = selected.view().row<int32_t>(rows.first(r) + i);
      for (int32_t p = 0; p <= rows.specs[size_t(r)].computed + i; ++p)
        if (p == rows.specs[size_t(r)].computed + i || keep(p)) *to++ = p;
    }
  return selected;  // the rest is the poison's -1
}

SparseAttentionArgs arguments(const Shape& s, const TensorView& q, const PagedCache& cache, const RaggedRows& rows,
                              const TensorView& selected, const TensorView& y) {
  return {q, cache, rows, selected, s.kv_heads, s.v_dim, s.k_offset, s.v_offset, 1 / std::sqrt(float(s.k_dim)), y};
}

TEST(SparseAttention, IsTheSoftmaxOverTheSelectedKeys) {
  Rng rng(2);
  Machine machine(2);
  const Rows rows(ragged);
  const Tensor selected = select(rows, [](int32_t p) { return p % 3 == 1; });
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType y_type : {DType::f32, DType::bf16})
      for (const Shape& s : shapes)
        for (const auto& kernel : runnable(sparse_attention_op(), {s.heads, s.kv_heads, s.k_dim, s.v_dim, s.k_offset,
                                                                   s.v_offset, dtype, y_type})) {
          SCOPED_TRACE(fmt::format("{} {} heads over {}", kernel.name(), s.heads, s.kv_heads));
          const Cache cache(rng, rows, dtype, s.elements, 4, 1);
          Tensor q(DType::f32, {rows.view.num_tokens, s.heads, s.k_dim}, 2),
              y(y_type, {rows.view.num_tokens, s.heads, s.v_dim}, 1);
          q.fill(rng);
          launch(sparse_attention_op(), *kernel, arguments(s, q, cache.view, rows.view, selected, y), machine.context);
          ASSERT_TRUE(y.complete());
          for (int64_t r = 0; r < rows.view.num_rows; ++r)
            for (int64_t t = rows.first(r); t < rows.first(r) + rows.specs[size_t(r)].fresh; ++t)
              for (int64_t head = 0; head < s.heads; ++head) {
                const int64_t kv = head / (s.heads / s.kv_heads);
                std::vector<double> scores, weights;
                double worst = 0, total = 0;
                const int32_t* listed = selected.view().row<int32_t>(t);
                int64_t count = 0;
                for (; count < selected.view().size(1) && listed[count] >= 0; ++count) {
                  double score = 0, size = 0;
                  for (int64_t d = 0; d < s.k_dim; ++d) {
                    const double product =
                        get(q, {t, head, d}) * cache.at(r, listed[count], s.k_offset + kv * s.k_dim + d);
                    score += product, size += std::abs(product);
                  }
                  scores.push_back(score / std::sqrt(double(s.k_dim)));
                  worst = std::max(worst, size / std::sqrt(double(s.k_dim)));
                }
                const double top = *std::max_element(scores.begin(), scores.end());
                for (double score : scores) total += weights.emplace_back(std::exp(score - top));
                for (int64_t d = 0; d < s.v_dim; ++d) {
                  double want = 0, size = 0;
                  for (int64_t k = 0; k < count; ++k) {
                    const double v = cache.at(r, listed[k], s.v_offset + kv * s.v_dim + d);
                    want += weights[size_t(k)] / total * v, size += weights[size_t(k)] / total * std::abs(v);
                  }
                  // A score's rounding is its weight's relative error; the two sums add one per key.
                  const double near = (double(s.k_dim + 4) * worst + double(2 * count + 8)) * f32_unit * size;
                  ASSERT_NEAR(get(y, {t, head, d}), want, near + 1.01 * unit_of(y_type) * std::abs(want));
                }
              }
        }
}

// "AVX2" of "simd.paged_attention/AVX2".
std::string instructions(const std::string& name) {
  const size_t at = name.find('/');
  return at == std::string::npos ? "" : name.substr(at);
}

TEST(SparseAttention, WithEveryKeySelectedItIsPagedAttention) {
  Rng rng(3);
  Machine machine(2);
  const Rows rows(ragged);
  const Tensor selected = select(rows, [](int32_t) { return true; });
  const Shape& s = shapes[0];
  const Cache cache(rng, rows, DType::f32, s.elements, 4);
  Tensor q(DType::f32, {rows.view.num_tokens, s.heads, s.k_dim}),
      y(DType::f32, {rows.view.num_tokens, s.heads, s.v_dim}),
      dense(DType::f32, {rows.view.num_tokens, s.heads, s.v_dim});
  q.fill(rng);
  for (const auto& kernel : runnable(sparse_attention_op(), {s.heads, 1, s.k_dim, s.v_dim, 0, 0})) {
    launch(sparse_attention_op(), *kernel, arguments(s, q, cache.view, rows.view, selected, y), machine.context);
    PagedAttentionArgs paged{q, cache.view, rows.view, 1, s.v_dim};
    paged.scale = 1 / std::sqrt(float(s.k_dim));
    paged.y = dense;
    for (const auto& other : runnable(paged_attention_op(), {s.heads, 1, s.k_dim, s.v_dim, 0, 0, DType::f32}))
      if (other->level == kernel->level && instructions(other.name()) == instructions(kernel.name()))
        launch(paged_attention_op(), *other, paged, machine.context);
    EXPECT_EQ(y.bytes(), dense.bytes()) << kernel.name();
  }
}

TEST(SparseAttention, BitsDependOnNeitherCompanyNorThreads) {
  Rng rng(4);
  const Rows rows(ragged);
  const Tensor selected = select(rows, [](int32_t p) { return p % 2 == 0; });
  const Shape& s = shapes[0];
  const Cache cache(rng, rows, DType::bf16, s.elements, 4);
  Tensor q(DType::f32, {rows.view.num_tokens, s.heads, s.k_dim}),
      y(DType::f32, {rows.view.num_tokens, s.heads, s.v_dim});
  q.fill(rng);
  for (const auto& kernel : runnable(sparse_attention_op(), {s.heads, 1, s.k_dim, s.v_dim, 0, 0, DType::bf16})) {
    std::vector<std::byte> expected;
    for (int threads = 1; threads <= 4; ++threads) {
      Machine machine(threads);
      y.poison();
      launch(sparse_attention_op(), *kernel, arguments(s, q, cache.view, rows.view, selected, y), machine.context);
      if (threads == 1) expected = y.bytes();
      EXPECT_EQ(y.bytes(), expected) << threads << " threads";
    }
    // Each row on its own.
    Machine machine;
    Tensor alone(DType::f32, {rows.view.num_tokens, s.heads, s.v_dim});
    for (int64_t r = 0; r < rows.view.num_rows; ++r) {
      const Rows one({rows.specs[size_t(r)]});
      const int64_t first = rows.first(r), count = rows.specs[size_t(r)].fresh;
      PagedCache own = cache.view;
      own.block_table = own.block_table.slice(0, r, 1);
      launch(sparse_attention_op(), *kernel,
             arguments(s, q.view().slice(0, first, count), own, one.view, selected.view().slice(0, first, count),
                       alone.view().slice(0, first, count)),
             machine.context);
    }
    EXPECT_EQ(alone.bytes(), expected);
  }
}

}  // namespace
}  // namespace medley
