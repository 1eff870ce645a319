#include "kernels/pointwise.h"

#include <algorithm>

#include "kernels/ref/scalar.h"

namespace medley::ref {
namespace {

void run_embedding(const EmbeddingArgs& a, ExecContext& context) {
  context.threads.parallel_for(a.ids.size(0), [&](int64_t t, int) {
    const int64_t row = a.ids.as<int32_t>()[t] - a.first_id;
    float* y = a.y.row<float>(t);
    if (row < 0 || row >= a.table.n) {
      std::fill_n(y, a.table.k, 0.0f);
      return;
    }
    weight_row(a.table, 0, row, y);
    for (int64_t i = 0; i < a.table.k; ++i) y[i] *= a.scale;
  });
}

float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::silu: return silu(x);
    case Activation::gelu_tanh:
      return 0.5f * x * (1.0f + std::tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));  // sqrt(2 / pi)
    case Activation::gelu: return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f));       // 1 / sqrt(2)
    case Activation::relu: return std::max(x, 0.0f);
    case Activation::relu2: return std::max(x, 0.0f) * std::max(x, 0.0f);
    case Activation::clamped_swiglu: {
      const float gate = std::min(x, swiglu_limit);
      return gate / (1.0f + std::exp(-swiglu_alpha * gate));
    }
  }
  return x;
}

void run_activation(const GatedActivationArgs& a, ExecContext& context) {
  const int64_t width = a.y.size(1);
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.y.size(0), [&](int64_t t, int) {
      const float* x = a.x.row<float>(t);
      Y* y = a.y.row<Y>(t);
      for (int64_t i = 0; i < width; ++i) {
        float up = a.gated ? x[width + i] : 1.0f;
        if (a.activation == Activation::clamped_swiglu) up = std::clamp(up, -swiglu_limit, swiglu_limit) + 1.0f;
        store(y + i, activate(a.activation, x[i]) * up);
      }
    });
  });
}

void run_convert(const ConvertRowsArgs& a, ExecContext& context) {
  with_float_type(a.x.dtype, [&](auto* x_type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      context.threads.parallel_for(a.y.size(0), [&](int64_t t, int) {
        const X* x = a.x.row<X>(a.rows ? a.rows.as<int32_t>()[t] : t);
        Y* y = a.y.row<Y>(t);
        for (int64_t i = 0; i < a.y.size(1); ++i) store(y + i, to_float(x[i]));
      });
    });
  });
}

void run_add(const AddArgs& a, ExecContext& context) {
  context.threads.parallel_for(a.y.size(0), [&](int64_t t, int) {
    const float* x = a.x.row<float>(t);
    float* y = a.y.row<float>(t);
    for (int64_t i = 0; i < a.y.size(1); ++i) y[i] += a.scale * x[i];
  });
}

void run_scale(const ScaleArgs& a, ExecContext& context) {
  context.threads.parallel_for(a.x.size(0), [&](int64_t t, int) {
    float* x = a.x.row<float>(t);
    for (int64_t i = 0; i < a.x.size(1); ++i) {
      x[i] *= a.scale;
      if (a.softcap != 0) x[i] = a.softcap * std::tanh(x[i] / a.softcap);
    }
  });
}

}  // namespace

extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding{"ref.embedding", Level::ref, any, run_embedding};
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation{"ref.gated_activation",
                                                                                       Level::ref, any, run_activation};
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows{"ref.convert_rows", Level::ref, any,
                                                                           run_convert};
extern const Implementation<AddDesc, AddArgs> add{"ref.add", Level::ref, any, run_add};
extern const Implementation<ScaleDesc, ScaleArgs> scale{"ref.scale", Level::ref, any, run_scale};

}  // namespace medley::ref
