// The pieces' results of absorbed MLA, added: docs/kernels/mla_decode.md.
#include "kernels/sm90/mla.h"

namespace medley::sm90::absorbed {
namespace {

// Pieces of (token, head), weighted by their share of the softmax's sum and added in ascending order: four columns of
// each of `at_once` rows a thread. Rows with nothing to add have 0 pieces.
template <int at_once, int unrolled>
__device__ void add_pieces(const Mla& a, const int64_t (&item)[at_once], const int (&pieces)[at_once], int column,
                           float4 (&sum)[at_once]) {
  float highest[at_once], total[at_once];
  int most = 0;
#pragma unroll
  for (int r = 0; r < at_once; ++r) {
    highest[r] = -INFINITY, total[r] = 0, sum[r] = make_float4(0, 0, 0, 0);
    most = max(most, pieces[r]);
  }
  const auto find_highest = [&] {
#pragma unroll
    for (int r = 0; r < at_once; ++r) {
      for (int p = threadIdx.x % 32; p < pieces[r]; p += 32)
        highest[r] = fmaxf(highest[r], a.partial_lse[item[r] + int64_t(p) * a.heads]);
      highest[r] = cuda::warp_max(highest[r]);
    }
  };
  for (int first = 0; first < most; first += unrolled) {
    float weights[unrolled][at_once];
    float4 values[unrolled][at_once];
#pragma unroll
    for (int i = 0; i < unrolled; ++i)
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        const bool used = first + i < pieces[r];
        const int64_t at = item[r] + int64_t(used ? first + i : 0) * a.heads;
        weights[i][r] = used ? a.partial_lse[at] : -INFINITY;
        values[i][r] =
            used ? __ldcs(reinterpret_cast<const float4*>(a.partial + at * latent + column)) : make_float4(0, 0, 0, 0);
      }
    if (first == 0) find_highest();  // with the first values under way
#pragma unroll
    for (int i = 0; i < unrolled; ++i)
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        if (first + i >= pieces[r]) continue;
        const float weight = exp2f(weights[i][r] - highest[r]);
        total[r] += weight;
        sum[r].x = fmaf(weight, values[i][r].x, sum[r].x), sum[r].y = fmaf(weight, values[i][r].y, sum[r].y);
        sum[r].z = fmaf(weight, values[i][r].z, sum[r].z), sum[r].w = fmaf(weight, values[i][r].w, sum[r].w);
      }
  }
#pragma unroll
  for (int r = 0; r < at_once; ++r) {
    const float inverse = 1.0f / total[r];
    sum[r].x *= inverse, sum[r].y *= inverse, sum[r].z *= inverse, sum[r].w *= inverse;
  }
}

__device__ void write_four(const Mla& a, int token, int head, int column, float4 sum) {
  const int64_t at = token * a.y_token + head * a.y_head + column;
  if (a.y_bf16) {
    auto* y = static_cast<__nv_bfloat162*>(a.y) + at / 2;
    y[0] = __floats2bfloat162_rn(sum.x, sum.y);
    y[1] = __floats2bfloat162_rn(sum.z, sum.w);
  } else {
    auto* y = static_cast<float2*>(a.y) + at / 2;
    y[0] = make_float2(sum.x, sum.y);
    y[1] = make_float2(sum.z, sum.w);
  }
}

// Block (one or two heads, token): two where there are many tokens, one where few must hurry.
template <int merged_heads, int unrolled>
__global__ void __launch_bounds__(latent / 4) merge(const Mla a) {
  const int first = blockIdx.x * merged_heads, token = a.first_token + blockIdx.y;
  if (token >= a.row_offsets[a.num_rows]) {
    wait_for_previous();  // who waits for this kernel waits for that one too
    return;
  }
  // The kernel ahead lets this one start after its own wait: the step's tables are complete.
  const int row = cuda::warp_row_of(a.row_offsets, a.num_rows, token);
  const int needed = (a.computed[row] + token - a.row_offsets[row]) / a.piece_tokens + 1;
  wait_for_previous();
  if (needed == 1) return;  // written already
  int64_t item[merged_heads];
  int pieces[merged_heads];
  float4 sum[merged_heads];
#pragma unroll
  for (int r = 0; r < merged_heads; ++r) {
    item[r] = partial_item(a, token, first + r);
    pieces[r] = first + r < a.heads ? needed : 0;
  }
  add_pieces<merged_heads, unrolled>(a, item, pieces, threadIdx.x * 4, sum);
#pragma unroll
  for (int r = 0; r < merged_heads; ++r)
    if (pieces[r] > 0) write_four(a, token, first + r, threadIdx.x * 4, sum[r]);
}

}  // namespace

void merge_pieces(const Mla& a, ExecContext& context) {
  const unsigned count = unsigned(a.last_token - a.first_token);
  const bool few = int64_t(count) * a.heads <= 1024;
  const auto kernel = !few ? merge<2, 4> : a.max_pieces <= 8 ? merge<1, 8> : merge<1, 16>;
  launch_kernel("paged_attention", kernel, {dim3(unsigned(cuda::blocks_for(a.heads, few ? 1 : 2)), count), latent / 4},
                context, a);
}

}  // namespace medley::sm90::absorbed
