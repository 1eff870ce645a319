// Gates, multipliers and layer_norm through Highway: what the families with a state or an indexer do between their
// products. Each row's arithmetic is its own, whichever thread does it.
#include "kernels/gate.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/gate.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/simd/for_rows.h"
#include "kernels/simd/math-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

template <Gate act, class Y>
void gate_row(const GateArgs& a, int64_t t) {
  const D d;
  const float *x = a.x.row<float>(t), *gate = a.gate.row<float>(t);
  Y* y = a.y.row<Y>(t);
  const int64_t count = a.x.size(1);
  for (int64_t i = 0; i < count; i += lanes) {
    V factor = load_at(gate, i, count);
    if constexpr (act == Gate::sigmoid) factor = sigmoid(d, factor);
    if constexpr (act == Gate::silu) factor = silu(d, factor);
    store_at(hn::Mul(load_at(x, i, count), factor), y, i, count);
  }
}

template <Gate act>
void run_gate_of(const GateArgs& a, ExecContext& context) {
  for_rows(context, a.x.size(0), a.x.size(1),
           [&](int64_t t) { a.y.dtype == DType::bf16 ? gate_row<act, bf16>(a, t) : gate_row<act, float>(a, t); });
}

void run_gate(const GateArgs& a, ExecContext& context) {
  switch (a.act) {
    case Gate::identity: return run_gate_of<Gate::identity>(a, context);
    case Gate::sigmoid: return run_gate_of<Gate::sigmoid>(a, context);
    case Gate::silu: return run_gate_of<Gate::silu>(a, context);
  }
}

void run_scale_columns(const ScaleColumnsArgs& a, ExecContext& context) {
  const int64_t count = a.y.size(1);
  for_rows(context, a.y.size(0), count, [&](int64_t t) {
    float* y = a.y.row<float>(t);
    for (int64_t i = 0; i < count; i += lanes)
      store_at(hn::Mul(load_at(y, i, count), load_at(a.scale, i, count)), y, i, count);
  });
}

void run_scale(const ScaleArgs& a, ExecContext& context) {
  const int64_t count = a.x.size(1);
  for_rows(context, a.x.size(0), count, [&](int64_t t) {
    const D d;
    const V scale = hn::Set(d, a.scale), cap = hn::Set(d, a.softcap);
    float* x = a.x.row<float>(t);
    for (int64_t i = 0; i < count; i += lanes) {
      V value = hn::Mul(load_at(x, i, count), scale);
      if (a.softcap != 0) value = hn::Mul(cap, tanh(d, hn::Div(value, cap)));
      store_at(value, x, i, count);
    }
  });
}

void layer_norm_row(const LayerNormArgs& a, int64_t t) {
  const D d;
  const int64_t dim = a.x.size(1);
  const float* x = a.x.row<float>(t);
  float* y = a.y.row<float>(t);
  V sum = hn::Zero(d), squares = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += lanes) sum = hn::Add(sum, load_at(x, i, dim));
  const V mean = hn::Set(d, sum_of_lanes(sum) / float(dim));
  for (int64_t i = 0; i < dim; i += lanes) {
    // What load_at puts after the row's end is no element: it must not count as one.
    const V off =
        hn::IfThenElseZero(hn::FirstN(d, size_t(std::min<int64_t>(lanes, dim - i))), hn::Sub(load_at(x, i, dim), mean));
    squares = hn::MulAdd(off, off, squares);
  }
  const V inverse = hn::Set(d, 1.0f / std::sqrt(sum_of_lanes(squares) / float(dim) + a.eps));
  for (int64_t i = 0; i < dim; i += lanes) {
    const V normed = hn::Mul(hn::Sub(load_at(x, i, dim), mean), inverse);
    store_at(hn::MulAdd(normed, load_at(a.weight, i, dim), load_at(a.bias, i, dim)), y, i, dim);
  }
}

void run_layer_norm(const LayerNormArgs& a, ExecContext& context) {
  for_rows(context, a.x.size(0), a.x.size(1), [&](int64_t t) { layer_norm_row(a, t); });
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {
namespace {

HWY_EXPORT(run_gate);
HWY_EXPORT(run_scale_columns);
HWY_EXPORT(run_scale);
HWY_EXPORT(run_layer_norm);

void gate_rows(const GateArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_gate)(a, context);
}
void scale_columns_of(const ScaleColumnsArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_scale_columns)(a, context);
}
void scale_rows(const ScaleArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_scale)(a, context);
}
void layer_norm_rows(const LayerNormArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_layer_norm)(a, context);
}

template <class Desc>
std::string any(const Desc&) {
  return {};
}

}  // namespace

extern const Implementation<GateDesc, GateArgs> gate{"simd.gate", Level::simd, any, gate_rows};
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns{"simd.scale_columns", Level::simd, any,
                                                                              scale_columns_of};
extern const Implementation<ScaleDesc, ScaleArgs> scale{"simd.scale", Level::simd, any, scale_rows};
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm{"simd.layer_norm", Level::simd, any,
                                                                     layer_norm_rows};

}  // namespace medley::simd
#endif
