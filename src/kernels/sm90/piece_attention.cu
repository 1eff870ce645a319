// MLA's prefill on Hopper's matrix units: one request's queries over one piece of its keys, up-projected from the
// latent. Keys are 128 elements of the head's own and 64 that all heads share, values 128.
//
// A block takes 128 queries of one head, two warpgroups of 64, and walks the piece's keys up to what its last query
// sees. The result is merged into the pieces before by log-sum-exp. A query's bits do not depend on the others': keys
// that it does not see add nothing, exactly.
#include "kernels/attention.h"
#include "kernels/cuda/common.h"
#include "kernels/sm90/attention_tile.h"
#include "kernels/sm90/tensor_map.h"

namespace medley::cuda {
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention;
}  // namespace medley::cuda

namespace medley::sm90 {
namespace {

using cuda::blocks_for;
using cuda::check_launch;
using cuda::data_of;
using cuda::stream_of;

constexpr int nope_dim = 128, rope_dim = 64, v_dim = 128;

struct Shape {
  static constexpr int keys = 128, stages = 2;
  static constexpr int k_tiles = (nope_dim + rope_dim) / 64, v_tiles = v_dim / 64;
  static constexpr int consumers = 256, threads = consumers + 128, rows = 2 * rows_of_group;
  static constexpr int key_tile_bytes = keys * 128;
  static constexpr int k_bytes = k_tiles * key_tile_bytes, v_bytes = v_tiles * key_tile_bytes;
  static constexpr int query_bytes = k_tiles * query_tile_bytes;
  struct Shared {
    std::byte q[2 * query_bytes];
    std::byte k[stages][k_bytes], v[stages][v_bytes];
    uint64_t k_full[stages], v_full[stages], k_empty[stages], v_empty[stages];
  };
};

struct Piece {
  const float* q;
  float *y, *lse;
  int64_t q_token, q_head, y_token, y_head, lse_token;
  int32_t queries, keys, seen_by_first;  // keys that the first query sees, below 0 when it comes long before them
  int32_t k_head, v_head;
  float scale_log2;
  bool first;
};

struct Maps {
  CUtensorMap k_nope, k_rope, v;
};

// A warp's lane: what is past the piece's last key reads as zeros.
__device__ void feed(const Maps& maps, const Piece& a, Shape::Shared& shared, int head, int end) {
  int stage = 0;
  uint32_t phase = 1;
  for (int first = 0; first < end; first += Shape::keys) {
    uint64_t* full = &shared.k_full[stage];
    std::byte* to = shared.k[stage];
    barrier_wait(&shared.k_empty[stage], phase);
    barrier_expect(full, Shape::k_bytes);
    for (int tile = 0; tile < nope_dim / 64; ++tile)
      copy_box(to + tile * Shape::key_tile_bytes, &maps.k_nope, head * a.k_head + tile * 64, first, full);
    copy_box(to + nope_dim / 64 * Shape::key_tile_bytes, &maps.k_rope, 0, first, full);
    full = &shared.v_full[stage];
    barrier_wait(&shared.v_empty[stage], phase);
    barrier_expect(full, Shape::v_bytes);
    for (int tile = 0; tile < Shape::v_tiles; ++tile)
      copy_box(shared.v[stage] + tile * Shape::key_tile_bytes, &maps.v, head * a.v_head + tile * 64, first, full);
    if (++stage == Shape::stages) stage = 0, phase ^= 1;
  }
}

// With lse' = log(exp(lse) + exp(lse_piece)) the old result is weighted by exp(lse - lse') and the piece's by
// exp(lse_piece - lse').
__device__ void merge_rows(const Piece& a, int first_query, int head, const Softmax& softmax, const float (&out)[64]) {
  constexpr float ln_2 = 0.6931471805599453f;
  const int warp = threadIdx.x % 128 / 32, g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + warp * 16 + g + half * 8;
    const float total = quad_sum(softmax.total[half]);
    if (query >= a.queries) continue;
    float* lse = a.lse + query * a.lse_token + head;
    float2* y = reinterpret_cast<float2*>(a.y + query * a.y_token + head * a.y_head) + quad;
    const bool seen = softmax.limit[half] > 0;
    if (!seen && !a.first) continue;
    // With named roundings: left to itself the compiler fuses other products in one half than in the other, and a
    // query's bits would depend on its place.
    const float before = a.first ? -INFINITY : *lse;
    const float mine = seen ? __fadd_rn(__fmul_rn(softmax.highest[half], ln_2), logf(total)) : -INFINITY;
    const float top = fmaxf(before, mine);
    const float both = __fadd_rn(expf(__fsub_rn(before, top)), expf(__fsub_rn(mine, top)));
    const float merged = seen ? __fadd_rn(top, logf(both)) : mine;
    const float old_share = a.first ? 0.0f : expf(__fsub_rn(before, merged));
    const float share = seen ? __fdiv_rn(expf(__fsub_rn(mine, merged)), total) : 0.0f;
#pragma unroll
    for (int j = 0; j < v_dim / 8; ++j) {
      float2 sum = make_float2(__fmul_rn(out[j * 4 + half * 2], share), __fmul_rn(out[j * 4 + half * 2 + 1], share));
      if (!a.first) {
        const float2 old = y[j * 4];
        sum.x = fmaf(old.x, old_share, sum.x), sum.y = fmaf(old.y, old_share, sum.y);
      }
      y[j * 4] = sum;
    }
    __syncwarp(0xfu << (threadIdx.x % 32 / 4 * 4));  // the four lanes of a row have read its lse
    if (quad == 0) *lse = merged;
  }
}

// Block (128 queries, the last ones first: they see most keys; head).
__global__ void __launch_bounds__(Shape::threads, 1) piece(const __grid_constant__ Maps maps, const Piece a) {
  extern __shared__ __align__(1024) std::byte memory[];
  auto& shared = *reinterpret_cast<Shape::Shared*>(memory);
  const int first_query = int(gridDim.x - 1 - blockIdx.x) * Shape::rows, head = blockIdx.y;
  const int count = min(Shape::rows, a.queries - first_query);
  const int end = max(0, min(a.keys, a.seen_by_first + first_query + count - 1));
  if (end == 0 && !a.first) return;
  if (threadIdx.x == 0) init_barriers<Shape>(shared);
  __syncthreads();
  if (threadIdx.x >= Shape::consumers) {
    registers_release<40>();
    if (threadIdx.x == Shape::consumers) feed(maps, a, shared, head, end);
    return;
  }
  registers_claim<232>();
  const int group = threadIdx.x / 128, first_row = group * rows_of_group;
  const int row = first_row + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  load_queries<Shape>(shared.q + group * Shape::query_bytes, count - first_row,
                      [&](int r) { return a.q + (first_query + first_row + r) * a.q_token + head * a.q_head; });
  Softmax softmax;
  for (int half = 0; half < 2; ++half) {
    softmax.low[half] = 0;
    softmax.limit[half] = max(0, min(end, a.seen_by_first + first_query + min(row + half * 8, count - 1)));
  }
  float out[v_dim / 2] = {};
  if (end > 0) walk<Shape>(shared, group, a.scale_log2, 0, end, softmax, out);
  merge_rows(a, first_query + first_row, head, softmax, out);
}

std::string supports(const PieceAttentionDesc& d) {
  if (d.nope_dim != nope_dim || d.rope_dim != rope_dim || d.v_dim != v_dim)
    return fmt::format("takes keys of {} + {} and values of {} elements", nope_dim, rope_dim, v_dim);
  if (d.kv != DType::bf16) return "takes bf16 keys";
  return {};
}

bool aligned(const TensorView& view, int64_t bytes) {
  bool good = reinterpret_cast<uintptr_t>(view.data) % uintptr_t(bytes) == 0;
  for (int d = 0; d + 1 < view.rank; ++d) good = good && view.strides[d] * int64_t(size_of(view.dtype)) % bytes == 0;
  return good;
}

void run(const PieceAttentionArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const int64_t heads = a.q.size(1), keys = a.k_nope.size(0);
  if (!(a.scale > 0) || !aligned(a.q, 16) || !aligned(a.y, 8) || !aligned(a.k_nope, 16) || !aligned(a.k_rope, 16) ||
      !aligned(a.v, 16) || keys == 0)
    return cuda::piece_attention.run(a, context);
  constexpr double log2_e = 1.4426950408889634;
  const Piece args{.q = data_of<float>(a.q),
                   .y = data_of<float>(a.y),
                   .lse = data_of<float>(a.lse),
                   .q_token = a.q.strides[0],
                   .q_head = a.q.strides[1],
                   .y_token = a.y.strides[0],
                   .y_head = a.y.strides[1],
                   .lse_token = a.lse.strides[0],
                   .queries = int32_t(a.q.size(0)),
                   .keys = int32_t(keys),
                   .seen_by_first = int32_t(a.q_position - a.k_position + 1),
                   .k_head = int32_t(a.k_nope.strides[1]),
                   .v_head = int32_t(a.v.strides[1]),
                   .scale_log2 = float(a.scale * log2_e),
                   .first = a.first};
  const auto map = [&](const TensorView& view, int64_t columns) {
    return matrix_map(view.data, keys, columns, view.strides[0] * 2, 64, Shape::keys);
  };
  const Maps maps{map(a.k_nope, (heads - 1) * a.k_nope.strides[1] + nope_dim), map(a.k_rope, rope_dim),
                  map(a.v, (heads - 1) * a.v.strides[1] + v_dim)};
  constexpr int bytes = sizeof(Shape::Shared);
  static const cudaError_t raised = cudaFuncSetAttribute(piece, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (raised != cudaSuccess) fail("[piece_attention] CUDA: {}", cudaGetErrorString(raised));
  const dim3 grid(unsigned(blocks_for(args.queries, Shape::rows)), unsigned(heads));
  piece<<<grid, Shape::threads, bytes, stream_of(context)>>>(maps, args);
  check_launch("piece_attention");
}

}  // namespace

extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{"sm90.piece_attention", Level::sm90,
                                                                                    supports, run};

}  // namespace medley::sm90
