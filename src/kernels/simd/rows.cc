// The ops that go over rows once, through Highway: norms, activations, rotary embedding, and the small ones. Each row's
// arithmetic is its own, whichever thread does it.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/moe.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/rope.h"
#include "kernels/simd/for_rows.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

// x of one element group, gated before the norm where it is so.
HWY_INLINE V norm_input(const RmsNormArgs& a, const float* x, const float* gate, int64_t i, int64_t end) {
  const V value = load_at(x, i, end);
  return a.gate_order == NormGate::before ? hn::Mul(value, silu(D(), load_at(gate, i, end))) : value;
}

template <class Y>
void norm_row(const RmsNormArgs& a, int64_t t) {
  const D d;
  const int64_t dim = a.x.size(1), group = a.group > 0 ? a.group : dim;
  float* x = a.x.row<float>(t);
  const float* gate = a.gate_order != NormGate::none ? a.gate.row<float>(t) : nullptr;
  Y* y = a.y.row<Y>(t);
  if (a.delta) {
    const float* delta = a.delta.row<float>(t);
    for (int64_t i = 0; i < dim; i += lanes) store_at(hn::Add(load_at(x, i, dim), load_at(delta, i, dim)), x, i, dim);
  }
  for (int64_t g = 0; g < dim; g += group) {
    const int64_t end = g + group;
    V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    int64_t i = g;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      HWY_UNROLL(4)
      for (int j = 0; j < 4; ++j) {
        const V value = norm_input(a, x, gate, i + j * lanes, end);
        sums[j] = hn::MulAdd(value, value, sums[j]);
      }
    }
    for (; i < end; i += lanes) {
      const V value = norm_input(a, x, gate, i, end);
      sums[0] = hn::MulAdd(value, value, sums[0]);
    }
    const float sum = sum_of_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
    const V inverse = hn::Set(d, 1.0f / std::sqrt(sum / float(group) + a.eps)), offset = hn::Set(d, a.weight_offset);
    for (i = g; i < end; i += lanes) {
      V value = hn::Mul(norm_input(a, x, gate, i, end), inverse);
      if (a.weight != nullptr) {
        const float* weight = a.weight_per_group ? a.weight - g : a.weight;
        value = hn::Mul(value, hn::Add(load_at(weight, i, end), offset));
      }
      if (a.gate_order == NormGate::after) value = hn::Mul(value, silu(d, load_at(gate, i, end)));
      if (a.gate_order == NormGate::after_sigmoid) value = hn::Mul(value, sigmoid(d, load_at(gate, i, end)));
      store_at(value, y, i, end);
    }
  }
}

void run_norm(const RmsNormArgs& a, ExecContext& context) {
  for_rows(context, a.x.size(0), a.x.size(1),
           [&](int64_t t) { a.y.dtype == DType::bf16 ? norm_row<bf16>(a, t) : norm_row<float>(a, t); });
}

template <Activation activation>
HWY_INLINE V activate(V x) {
  const D d;
  const V positive = hn::Max(hn::Zero(d), x);
  if constexpr (activation == Activation::silu) return silu(d, x);
  if constexpr (activation == Activation::relu) return positive;
  if constexpr (activation == Activation::relu2) return hn::Mul(positive, positive);
  if constexpr (activation == Activation::clamped_swiglu) {  // g * sigmoid(alpha g) = silu(alpha g) / alpha
    const V gate = hn::Min(x, hn::Set(d, swiglu_limit));
    return hn::Mul(silu(d, hn::Mul(gate, hn::Set(d, swiglu_alpha))), hn::Set(d, 1 / swiglu_alpha));
  }
  // gelu_tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
  const V inner = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
  const V t = tanh(d, hn::Mul(hn::Set(d, 0.7978845608028654f), inner));
  return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), t));
}

// What the activated gate multiplies.
template <Activation activation>
HWY_INLINE V factor(V up) {
  if constexpr (activation != Activation::clamped_swiglu) return up;
  const D d;
  const V limit = hn::Set(d, swiglu_limit);
  return hn::Add(hn::Max(hn::Min(up, limit), hn::Neg(limit)), hn::Set(d, 1.0f));
}

template <Activation activation, class Y>
void activation_row(const GatedActivationArgs& a, int64_t t) {
  const int64_t width = a.y.size(1);
  const float* x = a.x.row<float>(t);
  Y* y = a.y.row<Y>(t);
  for (int64_t i = 0; i < width; i += lanes) {
    V value = activate<activation>(load_at(x, i, width));
    if (a.gated) value = hn::Mul(value, factor<activation>(load_at(x + width, i, width)));
    store_at(value, y, i, width);
  }
}

template <Activation activation>
void run_activation_of(const GatedActivationArgs& a, ExecContext& context) {
  for_rows(context, a.y.size(0), 2 * a.y.size(1), [&](int64_t t) {
    a.y.dtype == DType::bf16 ? activation_row<activation, bf16>(a, t) : activation_row<activation, float>(a, t);
  });
}

void run_activation(const GatedActivationArgs& a, ExecContext& context) {
  switch (a.activation) {
    case Activation::silu: return run_activation_of<Activation::silu>(a, context);
    case Activation::gelu_tanh: return run_activation_of<Activation::gelu_tanh>(a, context);
    case Activation::relu: return run_activation_of<Activation::relu>(a, context);
    case Activation::relu2: return run_activation_of<Activation::relu2>(a, context);
    case Activation::clamped_swiglu: return run_activation_of<Activation::clamped_swiglu>(a, context);
    case Activation::gelu: break;  // refused by supports()
  }
}

// Whole vectors of pairs; those that are left are rotated one by one, by the same arithmetic.
void rope_head(float* x, const float* cosine, const float* sine, int64_t half, bool interleaved) {
  const D d;
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const V c = load(cosine + i), s = load(sine + i);
    V u, v;
    if (interleaved) {
      hn::LoadInterleaved2(d, x + 2 * i, u, v);
    } else {
      u = load(x + i);
      v = load(x + half + i);
    }
    const V first = hn::Sub(hn::Mul(u, c), hn::Mul(v, s)), second = hn::Add(hn::Mul(v, c), hn::Mul(u, s));
    if (interleaved) {
      hn::StoreInterleaved2(first, second, d, x + 2 * i);
    } else {
      store(first, x + i);
      store(second, x + half + i);
    }
  }
  for (; i < half; ++i) {
    float& first = x[interleaved ? 2 * i : i];
    float& second = x[interleaved ? 2 * i + 1 : half + i];
    const float u = first, v = second;
    first = u * cosine[i] - v * sine[i];
    second = v * cosine[i] + u * sine[i];
  }
}

void run_rope(const RopeArgs& a, ExecContext& context) {
  const int64_t half = a.table.size(1) / 2, heads = a.x.size(1);
  for_rows(context, a.x.size(0), 2 * half * heads, [&](int64_t t) {
    const float* cosine = a.table.row<float>(t);
    for (int64_t h = 0; h < heads; ++h)
      rope_head(a.x.row<float>(t) + h * a.x.strides[1], cosine, cosine + half, half, a.interleaved);
  });
}

template <class X, class Y>
HWY_INLINE void convert_row(const X* x, Y* y, int64_t count) {
  for (int64_t i = 0; i < count; i += lanes) store_at(load_at(x, i, count), y, i, count);
}

void convert(const TensorView& x, int64_t from, const TensorView& y, int64_t to) {
  const int64_t count = y.size(1);
  const bool x_half = x.dtype == DType::bf16, y_half = y.dtype == DType::bf16;
  if (x_half && y_half) convert_row(x.row<bf16>(from), y.row<bf16>(to), count);
  if (x_half && !y_half) convert_row(x.row<bf16>(from), y.row<float>(to), count);
  if (!x_half && y_half) convert_row(x.row<float>(from), y.row<bf16>(to), count);
  if (!x_half && !y_half) convert_row(x.row<float>(from), y.row<float>(to), count);
}

void run_convert(const ConvertRowsArgs& a, ExecContext& context) {
  for_rows(context, a.y.size(0), a.y.size(1),
           [&](int64_t t) { convert(a.x, a.rows ? a.rows.as<int32_t>()[t] : t, a.y, t); });
}

void add_row(const AddArgs& a, int64_t t) {
  const V scale = hn::Set(D(), a.scale);
  const float* x = a.x.row<float>(t);
  float* y = a.y.row<float>(t);
  const int64_t count = a.y.size(1);
  for (int64_t i = 0; i < count; i += lanes)
    store_at(hn::Add(load_at(y, i, count), hn::Mul(scale, load_at(x, i, count))), y, i, count);
}

void run_add(const AddArgs& a, ExecContext& context) {
  for_rows(context, a.y.size(0), a.y.size(1), [&](int64_t t) { add_row(a, t); });
}

// Products and sums apart, in ascending k: the order and the rounding are part of the op's meaning.
void sum_row(const WeightedSumArgs& a, int64_t t) {
  const D d;
  const int64_t top_k = a.topk_weights.size(1), count = a.y.size(1);
  const float* weights = a.topk_weights.row<float>(t);
  float* y = a.y.row<float>(t);
  for (int64_t i = 0; i < count; i += lanes) {
    V sum = hn::Zero(d);
    for (int64_t k = 0; k < top_k; ++k)
      sum = hn::Add(sum, hn::Mul(hn::Set(d, weights[k]), load_at(a.x.row<float>(t * top_k + k), i, count)));
    store_at(a.accumulate ? hn::Add(load_at(y, i, count), sum) : sum, y, i, count);
  }
}

void run_sum(const WeightedSumArgs& a, ExecContext& context) {
  for_rows(context, a.y.size(0), a.x.size(1) * a.topk_weights.size(1), [&](int64_t t) { sum_row(a, t); });
}

template <class W>
void embedding_row(const EmbeddingArgs& a, int64_t row, float* y) {
  const V scale = hn::Set(D(), a.scale);
  const W* from = reinterpret_cast<const W*>(a.table.data) + row * a.table.k;
  for (int64_t i = 0; i < a.table.k; i += lanes) store_at(hn::Mul(load_at(from, i, a.table.k), scale), y, i, a.table.k);
}

void run_embedding(const EmbeddingArgs& a, ExecContext& context) {
  for_rows(context, a.ids.size(0), a.table.k, [&](int64_t t) {
    const int64_t row = a.ids.as<int32_t>()[t] - a.first_id;
    float* y = a.y.row<float>(t);
    if (row < 0 || row >= a.table.n) {
      std::fill_n(y, a.table.k, 0.0f);
    } else {
      a.table.dtype == DType::bf16 ? embedding_row<bf16>(a, row, y) : embedding_row<float>(a, row, y);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {
namespace {

HWY_EXPORT(run_norm);
HWY_EXPORT(run_activation);
HWY_EXPORT(run_rope);
HWY_EXPORT(run_convert);
HWY_EXPORT(run_add);
HWY_EXPORT(run_sum);
HWY_EXPORT(run_embedding);

void norm(const RmsNormArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_norm)(a, context);
}
void activation(const GatedActivationArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_activation)(a, context);
}
void rotate(const RopeArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_rope)(a, context);
}
void convert(const ConvertRowsArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_convert)(a, context);
}
void add_rows(const AddArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_add)(a, context);
}
void sum(const WeightedSumArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_sum)(a, context);
}
void embed(const EmbeddingArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_embedding)(a, context);
}

template <class Desc>
std::string any(const Desc&) {
  return {};
}
std::string supports_activation(const GatedActivationDesc& desc) {
  return desc.activation != Activation::gelu ? "" : "has no erf";
}
std::string supports_embedding(const EmbeddingDesc& desc) {
  return desc.weight == DType::bf16 || desc.weight == DType::f32 ? "" : "takes tables of bf16 or f32";
}

}  // namespace

extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm{"simd.rms_norm", Level::simd, any, norm};
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation{
    "simd.gated_activation", Level::simd, supports_activation, activation};
extern const Implementation<RopeDesc, RopeArgs> rope{"simd.rope", Level::simd, any, rotate};
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows{"simd.convert_rows", Level::simd, any,
                                                                           convert};
extern const Implementation<AddDesc, AddArgs> add{"simd.add", Level::simd, any, add_rows};
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum{"simd.weighted_sum", Level::simd, any, sum};
extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding{"simd.embedding", Level::simd, supports_embedding,
                                                                    embed};

}  // namespace medley::simd
#endif
