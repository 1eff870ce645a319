// linear and grouped_linear, plainly: every output is one dot product over k. Weights in blocks: of every group of
// columns with one scale, the small integers times x are summed, and x alone; the scale and the minimum apply to these
// sums, groups in ascending order. With x in int8 (block_int8.h) the sums are of integers.
#include "kernels/linear.h"

#include <vector>

#include "kernels/block_format.h"
#include "kernels/block_int8.h"
#include "kernels/ref/scalar.h"

namespace medley::ref {
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation;

namespace {

constexpr int64_t rows_per_task = 16;  // weight rows widened to float once and used for every token

// A row of x, quantised.
struct Int8Row {
  std::vector<int8_t> q;
  std::vector<float> scale;  // [k / 32]

  template <class X>
  Int8Row(const X* x, int64_t k) : q(size_t(k)), scale(size_t(k / block_int8::columns)) {
    for (size_t i = 0; i < scale.size(); ++i)
      scale[i] = block_int8::quantise(x + i * block_int8::columns, q.data() + i * block_int8::columns);
  }
};

// Rows of x as the products take them: as they are, or in int8.
template <class X, bool int8>
class Inputs {
 public:
  using Row = std::conditional_t<int8, Int8Row, X>;
  explicit Inputs(const TensorView& x) : x_(x) {
    for (int64_t t = 0; int8 && t < x.size(0); ++t) rows_.emplace_back(x.row<X>(t), x.size(1));
  }
  const Row* operator[](int64_t row) const {
    if constexpr (int8) {
      return &rows_[size_t(row)];
    } else {
      return x_.row<X>(row);
    }
  }

 private:
  TensorView x_;
  std::vector<Int8Row> rows_;
};

// A row of weights as the products take it: plain ones as they are (one group), blocks as integers with their scales.
struct Row {
  std::vector<float> q;  // [k]
  int64_t group = 0;
  bool blocks = false, minimum = false;
  std::vector<float> d, m;  // of blocks: [k / group]

  void read(const WeightView& weight, int64_t slot, int64_t n) {
    q.resize(size_t(weight.k));
    blocks = is_block(weight.dtype);
    if (!blocks) return weight_row(weight, slot, n, q.data());
    const BlockFormat& format = format_of(weight.dtype);
    group = format.group;
    minimum = format.minimum;
    d.clear(), m.clear();
    BlockParts parts;
    for (int64_t k = 0; k < weight.k; k += format.elements) {
      weight_block(weight, slot, n, k / format.elements, parts);
      for (int i = 0; i < format.elements; ++i) q[size_t(k + i)] = float(level_of(format, parts.codes[i]));
      for (int g = 0; g < format.groups(); ++g) {
        d.push_back(group_scale(format, parts, g));
        m.push_back(group_minimum(format, parts, g));
      }
    }
  }

  template <class X>
  float times(const X* x) const {
    if (!blocks) return dot(x, q.data(), int64_t(q.size()));
    float total = 0;
    for (size_t g = 0; g < d.size(); ++g) {
      float products = 0, sum = 0;
      for (int64_t i = int64_t(g) * group; i < int64_t(g + 1) * group; ++i) {
        products += q[size_t(i)] * to_float(x[i]);
        sum += to_float(x[i]);
      }
      total += d[g] * products;
      if (minimum) total -= m[g] * sum;
    }
    return total;
  }
  float times(const Int8Row* x) const {
    float total = 0;
    for (size_t g = 0; g < d.size(); ++g) {
      int32_t products = 0, sum = 0;
      for (size_t i = g * size_t(group); i < (g + 1) * size_t(group); ++i) {
        products += int32_t(q[i]) * x->q[i];
        sum += x->q[i];
      }
      const float scale = x->scale[g * size_t(group) / block_int8::columns];
      total = std::fma(d[g] * scale, float(products), total);
      if (minimum) total = std::fma(-m[g], scale * float(sum), total);
    }
    return total;
  }
};

// y(token row, out) for weight rows [begin, end) of one slot; `x_row` and `y_row` map a token to its rows.
template <class X, class Y>
void multiply(const WeightView& weight, int64_t slot, int64_t begin, int64_t end, const float* bias, bool accumulate,
              const std::vector<std::pair<const X*, Y*>>& tokens, Row& row) {
  for (int64_t n = begin; n < end; ++n) {
    row.read(weight, slot, n);
    const float b = bias != nullptr ? bias[slot * weight.n + n] : 0.0f;
    for (const auto& [x, y] : tokens) {
      const float value = row.times(x) + b;
      store(y + n, accumulate ? to_float(y[n]) + value : value);
    }
  }
}

template <bool int8>
void run_linear(const LinearArgs& a, ExecContext& context) {
  with_float_type(a.x.dtype, [&](auto* x_type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      using Input = typename Inputs<X, int8>::Row;
      const Inputs<X, int8> inputs(a.x);
      std::vector<std::pair<const Input*, Y*>> tokens;
      for (int64_t t = 0; t < a.x.size(0); ++t) tokens.emplace_back(inputs[t], a.y.row<Y>(t));
      const int64_t tasks = (a.weight.n + rows_per_task - 1) / rows_per_task;
      context.threads.parallel_for(tasks, [&](int64_t task, int) {
        Row row;
        const int64_t begin = task * rows_per_task, end = std::min(begin + rows_per_task, a.weight.n);
        multiply<Input, Y>(a.weight, 0, begin, end, a.bias, a.accumulate, tokens, row);
      });
    });
  });
}

void run_headwise(const HeadwiseLinearArgs& a, ExecContext& context) {
  const int64_t parts = (a.weight.n + rows_per_task - 1) / rows_per_task;
  with_float_type(a.x.dtype, [&](auto* x_type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      context.threads.parallel_for(a.weight.slots * parts, [&](int64_t task, int) {
        const int64_t head = task / parts, begin = task % parts * rows_per_task;
        std::vector<std::pair<const X*, Y*>> tokens;
        for (int64_t t = 0; t < a.x.size(0); ++t)
          tokens.emplace_back(a.x.row<X>(t) + head * a.x.strides[1], a.y.row<Y>(t) + head * a.y.strides[1]);
        Row row;
        multiply<X, Y>(a.weight, head, begin, std::min(begin + rows_per_task, a.weight.n), nullptr, false, tokens, row);
      });
    });
  });
}

template <bool int8>
void run_grouped(const GroupedLinearArgs& a, ExecContext& context) {
  const int64_t blocks = *a.num_tokens_post_padded / a.block_m;
  const int64_t parts = (a.weight.n + rows_per_task - 1) / rows_per_task;
  with_float_type(a.x.dtype, [&](auto* x_type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      using Input = typename Inputs<X, int8>::Row;
      const Inputs<X, int8> inputs(a.x);
      context.threads.parallel_for(blocks * parts, [&](int64_t task, int) {
        const int64_t block = task / parts, begin = task % parts * rows_per_task;
        std::vector<std::pair<const Input*, Y*>> tokens;
        for (int64_t i = 0; i < a.block_m; ++i) {
          const int64_t pair = a.sorted_token_ids[block * a.block_m + i];
          if (pair < a.num_pairs) tokens.emplace_back(inputs[pair / a.x_divisor], a.y.row<Y>(pair));
        }
        Row row;
        multiply<Input, Y>(a.weight, a.expert_ids[block], begin, std::min(begin + rows_per_task, a.weight.n), a.bias,
                           false, tokens, row);
      });
    });
  });
}

template <class Desc>
std::string supports(const Desc& desc) {
  return desc.int8 ? "does not quantise x" : "";
}
template <class Desc>
std::string supports_int8(const Desc& desc) {
  return desc.int8 && is_block(desc.weight) ? "" : "takes x as int8 and block weights";
}

void run_gated(const GatedGroupedLinearArgs& a, ExecContext& context) {
  GroupedLinearArgs product = a;
  Buffer both(size_t(a.num_pairs * a.weight.n) * sizeof(float) + 1);
  product.y = both.view(DType::f32, {a.num_pairs, a.weight.n});
  // Pairs of absent experts are nobody's: their rows of y stay as they are.
  std::vector<bool> here(size_t(a.num_pairs));
  for (int64_t i = 0; i < *a.num_tokens_post_padded; ++i)
    if (a.sorted_token_ids[i] < a.num_pairs) here[size_t(a.sorted_token_ids[i])] = true;
  run_grouped<false>(product, context);
  for (int64_t pair = 0; pair < a.num_pairs; ++pair)
    if (here[size_t(pair)])
      gated_activation.run(
          {.x = product.y.slice(0, pair, 1), .activation = a.activation, .gated = true, .y = a.y.slice(0, pair, 1)},
          context);
}

}  // namespace

extern const Implementation<LinearDesc, LinearArgs> linear{"ref.linear", Level::ref, supports<LinearDesc>,
                                                           run_linear<false>};
extern const Implementation<LinearDesc, LinearArgs> linear_int8{"ref.linear_int8", Level::ref,
                                                                supports_int8<LinearDesc>, run_linear<true>};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{
    "ref.headwise_linear", Level::ref, supports<HeadwiseLinearDesc>, run_headwise};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{
    "ref.grouped_linear", Level::ref, supports<GroupedLinearDesc>, run_grouped<false>};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear_int8{
    "ref.grouped_linear_int8", Level::ref, supports_int8<GroupedLinearDesc>, run_grouped<true>};
extern const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs> gated_grouped_linear{
    "ref.gated_grouped_linear", Level::ref, supports<GatedGroupedLinearDesc>, run_gated};

}  // namespace medley::ref
