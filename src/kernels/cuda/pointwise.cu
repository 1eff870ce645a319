// The small ops between matrix products: one thread an element, consecutive threads consecutive elements.
#include "kernels/pointwise.h"

#include "kernels/cuda/launch.h"
#include "kernels/gate.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;

// Elements are numbered over [rows, width]; a grid of rows keeps the division out of the kernels.
dim3 grid_of(int64_t rows, int64_t width) {
  return dim3(unsigned(rows), blocks_for(width, threads));
}

template <class W>
__global__ void embed(const int32_t* ids, const W* table, int64_t first_id, int64_t table_rows, int64_t dim,
                      float scale, float* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= dim) return;
  const int64_t row = ids[t] - first_id;
  y[t * y_stride + i] = row >= 0 && row < table_rows ? to_float(table[row * dim + i]) * scale : 0.0f;
}

void run_embedding(const EmbeddingArgs& a, ExecContext& context) {
  const int64_t dim = a.table.k;
  if (a.y.elements() == 0) return;
  with_weight_type(a.table.dtype, [&](auto* type) {
    using W = std::remove_pointer_t<decltype(type)>;
    launch_kernel("embedding", embed<W>, {grid_of(a.y.size(0), dim), threads}, context, data_of<int32_t>(a.ids),
                  reinterpret_cast<const W*>(a.table.data), a.first_id, a.table.n, dim, a.scale, data_of<float>(a.y),
                  a.y.strides[0]);
  });
}

template <Activation activation>
__device__ float activate(float x) {
  if constexpr (activation == Activation::silu) return silu(x);
  if constexpr (activation == Activation::gelu_tanh)
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));  // sqrt(2 / pi)
  if constexpr (activation == Activation::gelu) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  if constexpr (activation == Activation::relu) return fmaxf(x, 0.0f);
  if constexpr (activation == Activation::clamped_swiglu) {
    const float clamped = fminf(x, swiglu_limit);
    return clamped / (1.0f + expf(-swiglu_alpha * clamped));
  }
  return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);  // relu2
}

template <Activation activation, class Y>
__global__ void gated_activation_kernel(const float* x, int64_t x_stride, bool gated, int64_t width, Y* y,
                                        int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= width) return;
  x += t * x_stride;
  float up = gated ? x[width + i] : 1.0f;
  if constexpr (activation == Activation::clamped_swiglu) up = fminf(fmaxf(up, -swiglu_limit), swiglu_limit) + 1.0f;
  store(y + t * y_stride + i, activate<activation>(x[i]) * up);
}

// Four neighbouring elements a thread.
template <Activation activation, class Y>
__global__ void gated_activation_fours(const float* x, int64_t x_stride, bool gated, int64_t width, Y* y,
                                       int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * 4;
  if (i >= width) return;
  x += t * x_stride;
  const float4 gates = __ldcs(reinterpret_cast<const float4*>(x + i));
  float4 ups = make_float4(1, 1, 1, 1);
  if (gated) ups = __ldcs(reinterpret_cast<const float4*>(x + width + i));
  float up[4] = {ups.x, ups.y, ups.z, ups.w}, out[4];
  const float gate[4] = {gates.x, gates.y, gates.z, gates.w};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if constexpr (activation == Activation::clamped_swiglu)
      up[e] = fminf(fmaxf(up[e], -swiglu_limit), swiglu_limit) + 1.0f;
    out[e] = activate<activation>(gate[e]) * up[e];
  }
  store_four(y + t * y_stride + i, out);
}

template <Activation activation>
void launch_gate(const GatedActivationArgs& a, ExecContext& context) {
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    const bool fours = a.y.size(1) % 4 == 0 && a.x.strides[0] % 4 == 0 && a.y.strides[0] % 4 == 0 &&
                       reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(a.y.data) % 16 == 0;
    if (fours) {
      const int64_t pieces = a.y.size(1) / 4;
      const unsigned block = unsigned(std::min<int64_t>((pieces + 31) / 32 * 32, threads));
      launch_kernel("gated_activation", gated_activation_fours<activation, Y>,
                    {dim3(unsigned(a.y.size(0)), blocks_for(pieces, block)), block}, context, data_of<float>(a.x),
                    a.x.strides[0], a.gated, a.y.size(1), data_of<Y>(a.y), a.y.strides[0]);
      return;
    }
    launch_kernel("gated_activation", gated_activation_kernel<activation, Y>,
                  {grid_of(a.y.size(0), a.y.size(1)), threads}, context, data_of<float>(a.x), a.x.strides[0], a.gated,
                  a.y.size(1), data_of<Y>(a.y), a.y.strides[0]);
  });
}

void run_activation(const GatedActivationArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  switch (a.activation) {
    case Activation::silu: launch_gate<Activation::silu>(a, context); break;
    case Activation::gelu_tanh: launch_gate<Activation::gelu_tanh>(a, context); break;
    case Activation::gelu: launch_gate<Activation::gelu>(a, context); break;
    case Activation::relu: launch_gate<Activation::relu>(a, context); break;
    case Activation::relu2: launch_gate<Activation::relu2>(a, context); break;
    case Activation::clamped_swiglu: launch_gate<Activation::clamped_swiglu>(a, context); break;
  }
}

template <class X, class Y>
__global__ void convert(const X* x, int64_t x_stride, const int32_t* rows, int64_t dim, Y* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= dim) return;
  const int64_t from = rows != nullptr ? rows[t] : t;
  store(y + t * y_stride + i, to_float(x[from * x_stride + i]));
}

void run_convert(const ConvertRowsArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  with_float_type(a.x.dtype, [&](auto* x_type) {
    with_float_type(a.y.dtype, [&](auto* y_type) {
      using X = std::remove_pointer_t<decltype(x_type)>;
      using Y = std::remove_pointer_t<decltype(y_type)>;
      launch_kernel("convert_rows", convert<X, Y>, {grid_of(a.y.size(0), a.y.size(1)), threads}, context,
                    data_of<X>(a.x), a.x.strides[0], a.rows ? data_of<int32_t>(a.rows) : nullptr, a.y.size(1),
                    data_of<Y>(a.y), a.y.strides[0]);
    });
  });
}

__global__ void add_scaled(const float* x, int64_t x_stride, float scale, int64_t dim, float* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i < dim) y[t * y_stride + i] += scale * x[t * x_stride + i];
}

void run_add(const AddArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  launch_kernel("add", add_scaled, {grid_of(a.y.size(0), a.y.size(1)), threads}, context, data_of<float>(a.x),
                a.x.strides[0], a.scale, a.y.size(1), data_of<float>(a.y), a.y.strides[0]);
}

__global__ void scale_all(float* x, int64_t x_stride, int64_t dim, float scale, float softcap) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= dim) return;
  const float value = scale * x[t * x_stride + i];
  x[t * x_stride + i] = softcap > 0 ? softcap * tanhf(value / softcap) : value;
}

void run_scale(const ScaleArgs& a, ExecContext& context) {
  if (a.x.elements() == 0) return;
  launch_kernel("scale", scale_all, {grid_of(a.x.size(0), a.x.size(1)), threads}, context, data_of<float>(a.x),
                a.x.strides[0], a.x.size(1), a.scale, a.softcap);
}

template <class Y>
__global__ void multiply_gate(const float* x, int64_t x_stride, const float* gate, int64_t gate_stride, Gate act,
                              int64_t dim, Y* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= dim) return;
  float factor = gate[t * gate_stride + i];
  if (act == Gate::sigmoid) factor = sigmoid(factor);
  if (act == Gate::silu) factor = silu(factor);
  store(y + t * y_stride + i, x[t * x_stride + i] * factor);
}

void run_gate(const GateArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    launch_kernel("gate", multiply_gate<Y>, {grid_of(a.y.size(0), a.y.size(1)), threads}, context, data_of<float>(a.x),
                  a.x.strides[0], data_of<float>(a.gate), a.gate.strides[0], a.act, a.y.size(1), data_of<Y>(a.y),
                  a.y.strides[0]);
  });
}

__global__ void scale_each(const float* scale, int64_t dim, float* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i < dim) y[t * y_stride + i] *= scale[i];
}

void run_scale_columns(const ScaleColumnsArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  launch_kernel("scale_columns", scale_each, {grid_of(a.y.size(0), a.y.size(1)), threads}, context, a.scale,
                a.y.size(1), data_of<float>(a.y), a.y.strides[0]);
}

}  // namespace

extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding{"cuda.embedding", Level::cuda, no_blocks,
                                                                    run_embedding};
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation{
    "cuda.gated_activation", Level::cuda, any, run_activation};
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows{"cuda.convert_rows", Level::cuda, any,
                                                                           run_convert};
extern const Implementation<AddDesc, AddArgs> add{"cuda.add", Level::cuda, any, run_add};
extern const Implementation<ScaleDesc, ScaleArgs> scale{"cuda.scale", Level::cuda, any, run_scale};
extern const Implementation<GateDesc, GateArgs> gate{"cuda.gate", Level::cuda, any, run_gate};
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns{"cuda.scale_columns", Level::cuda, any,
                                                                              run_scale_columns};

}  // namespace medley::cuda
