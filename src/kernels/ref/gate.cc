#include "kernels/gate.h"

#include "kernels/ref/scalar.h"

namespace medley::ref {
namespace {

float activated(Gate act, float x) {
  switch (act) {
    case Gate::identity: return x;
    case Gate::sigmoid: return sigmoid(x);
    case Gate::silu: return silu(x);
  }
  return x;
}

void run_gate(const GateArgs& a, ExecContext& context) {
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.x.size(0), [&](int64_t t, int) {
      const float* x = a.x.row<float>(t);
      const float* gate = a.gate.row<float>(t);
      Y* y = a.y.row<Y>(t);
      for (int64_t i = 0; i < a.x.size(1); ++i) store(y + i, x[i] * activated(a.act, gate[i]));
    });
  });
}

void run_scale(const ScaleColumnsArgs& a, ExecContext& context) {
  context.threads.parallel_for(a.y.size(0), [&](int64_t t, int) {
    float* y = a.y.row<float>(t);
    for (int64_t i = 0; i < a.y.size(1); ++i) y[i] *= a.scale[i];
  });
}

}  // namespace

extern const Implementation<GateDesc, GateArgs> gate{"ref.gate", Level::ref, any, run_gate};
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns{"ref.scale_columns", Level::ref, any,
                                                                              run_scale};

}  // namespace medley::ref
