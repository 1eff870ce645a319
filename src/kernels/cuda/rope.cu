// Rotary embedding: one thread an angle, then one thread a rotated pair.
#include "kernels/rope.h"

#include "kernels/cuda/launch.h"

namespace medley::cuda {
namespace {

constexpr int threads = 128;

__global__ void angles(const int32_t* positions, const float* inv_freq, float factor, int64_t tokens, int64_t half,
                       float* table, int64_t stride) {
  follow_previous();
  const int64_t item = int64_t(blockIdx.x) * threads + threadIdx.x;
  if (item >= tokens * half) return;
  const int64_t t = item / half, i = item % half;
  float sine, cosine;
  sincosf(float(positions[t]) * inv_freq[i], &sine, &cosine);
  table[t * stride + i] = cosine * factor;
  table[t * stride + half + i] = sine * factor;
}

void run_angles(const RopeAnglesArgs& a, ExecContext& context) {
  const int64_t tokens = a.table.size(0), half = a.table.size(1) / 2;
  if (tokens * half == 0) return;
  launch_kernel("rope_angles", angles, {blocks_for(tokens * half, threads), threads}, context,
                data_of<int32_t>(a.positions), a.inv_freq, a.factor, tokens, half, data_of<float>(a.table),
                a.table.strides[0]);
}

__global__ void rotate(float* x, int64_t token_stride, int64_t head_stride, int64_t heads, int64_t half,
                       const float* table, int64_t table_stride, bool interleaved) {
  follow_previous();
  const int64_t t = blockIdx.x, item = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (item >= heads * half) return;
  const int64_t head = item / half, i = item % half;
  x += t * token_stride + head * head_stride;
  float* first = x + (interleaved ? 2 * i : i);
  float* second = x + (interleaved ? 2 * i + 1 : i + half);
  const float cosine = table[t * table_stride + i], sine = table[t * table_stride + half + i];
  const float u = *first, v = *second;
  *first = u * cosine - v * sine;
  *second = v * cosine + u * sine;
}

void run_rope(const RopeArgs& a, ExecContext& context) {
  const int64_t tokens = a.x.size(0), heads = a.x.size(1), half = a.table.size(1) / 2;
  if (tokens * heads * half == 0) return;
  launch_kernel("rope", rotate, {dim3(unsigned(tokens), blocks_for(heads * half, threads)), threads}, context,
                data_of<float>(a.x), a.x.strides[0], a.x.strides[1], heads, half, data_of<float>(a.table),
                a.table.strides[0], a.interleaved);
}

}  // namespace

extern const Implementation<RopeAnglesDesc, RopeAnglesArgs> rope_angles{"cuda.rope_angles", Level::cuda, any,
                                                                        run_angles};
extern const Implementation<RopeDesc, RopeArgs> rope{"cuda.rope", Level::cuda, any, run_rope};

}  // namespace medley::cuda
