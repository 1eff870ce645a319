// linear, headwise_linear and grouped_linear for bf16 on Hopper's matrix units: weights in M (64 rows an instruction),
// tokens in N. A product costs its weights' trip through memory whether one token or 128 wait for it, and an output's
// additions run over k in steps of 16 whatever N is: a token's bits do not depend on how many came with it.
//
// A block keeps a ring of stages, 64 k of its weights and tokens each, that a fourth of its warps refills: weights (and
// the tokens of dense products) by bulk tensor copies, the tokens of experts row by row. Matrices too small to occupy
// the chip are cut along k into slices, a number that the matrix's shape alone fixes, whose sums are added in order:
// with few tokens by a cluster of blocks, a slice each; with many by one block, one slice after the other.
//
// gated_grouped_linear: eight rows of the gate and the same eight of up in turns, so that one thread has both sums.
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/linear.h"
#include "kernels/sm90/linear_tile.h"
#include "kernels/sm90/tensor_map.h"

namespace medley::cuda {
extern const Implementation<LinearDesc, LinearArgs> linear;
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear;
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear;
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation;
}  // namespace medley::cuda

namespace medley::sm90 {
namespace {

using cuda::blocks_for;

constexpr int max_slices = 8;
constexpr int64_t enough_blocks = 96;  // of 132 processors

struct Steps {
  int begin, end;
};
__device__ Steps steps_of(const Product& a, bool sequential) {
  if (sequential || a.slices == 1) return {0, a.steps};
  const int begin = blockIdx.x % a.slices * a.slice_steps;
  return {begin, min(begin + a.slice_steps, a.steps)};
}
__device__ int first_tile(const Product& a, bool sequential) {
  return sequential ? blockIdx.x : blockIdx.x / a.slices;
}
__device__ int tile_stride(const Product& a, bool sequential) {
  return sequential ? gridDim.x : gridDim.x / a.slices;
}

template <class S>
struct Ring {
  uint64_t *full, *empty;
  int stage = 0;
  uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == S::stages) stage = 0, phase ^= 1;
  }
};

// One thread. A dense product's first weights, which no kernel writes, are under way before the kernels ahead have
// ended; the next kernel may come once the last loads are.
template <class S>
__device__ void copy_tiles(const CUtensorMap* weights, const CUtensorMap* tokens, const Product& a, std::byte* memory,
                           Ring<S> ring) {
  const Steps steps = steps_of(a, S::sequential);
  const auto copy_weights = [&](const Tile& tile, int step, int stage) {
    std::byte* to = memory + stage * S::stage_bytes;
    barrier_expect(&ring.full[stage], S::weight_bytes + (S::grouped ? 0 : S::token_bytes));
    if constexpr (S::gated) {
      copy_gated_box(to, weights, step * k_step, tile.row / 16, tile.slot, &ring.full[stage]);
    } else {
      copy_box(to, weights, step * k_step, tile.slot * a.n + tile.row, &ring.full[stage]);
    }
  };
  int early = 0;
  if constexpr (!S::grouped) {
    const Tile tile = tile_at<S>(a, first_tile(a, S::sequential));
    for (; early < min(S::stages, steps.end - steps.begin); ++early) copy_weights(tile, steps.begin + early, early);
  }
  wait_for_previous();
  const int tiles = tile_count<S>(a);
  for (int index = first_tile(a, S::sequential); index < tiles; index += tile_stride(a, S::sequential)) {
    const Tile tile = tile_at<S>(a, index);
    for (int step = steps.begin; step < steps.end; ++step, ring.advance()) {
      if (early > 0) {
        --early;
      } else {
        barrier_wait(&ring.empty[ring.stage], ring.phase ^ 1);
        copy_weights(tile, step, ring.stage);
      }
      if constexpr (!S::grouped)
        copy_box(memory + ring.stage * S::stage_bytes + S::weight_bytes, tokens, tile.slot * a.x_head + step * k_step,
                 tile.token, &ring.full[ring.stage]);
    }
  }
  let_next_start();
}

__device__ void copy_sixteen(std::byte* to, const void* from, bool used) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(used ? 16 : 0)
               : "memory");
}

// Three warps: 16 bytes a thread, eight threads a row. The copies announce themselves when they have landed; a fence by
// the announcer would wait for all that are under way (tried: a third slower), so the products' side has it.
template <class S>
__device__ void gather_tokens(const Product& a, std::byte* memory, Ring<S> ring) {
  constexpr int rows_at_once = gatherers / 8, passes = (S::n + rows_at_once - 1) / rows_at_once;
  wait_for_previous();
  const int thread = threadIdx.x - S::consumers - 32, piece = thread % 8, first_row = thread / 8;
  const int tiles = tile_count<S>(a);
  const Steps steps = steps_of(a, S::sequential);
  for (int index = first_tile(a, S::sequential); index < tiles; index += tile_stride(a, S::sequential)) {
    const Tile tile = tile_at<S>(a, index);
    int x_row[passes];
#pragma unroll
    for (int i = 0; i < passes; ++i) {
      const int row = first_row + i * rows_at_once;
      const int pair = row < S::n && row < tile.token_count ? a.sorted[tile.token + row] : a.tokens;
      x_row[i] = pair < a.tokens ? pair / a.x_divisor : -1;
    }
    for (int step = steps.begin; step < steps.end; ++step, ring.advance()) {
      const int k = step * k_step + piece * 8;
      std::byte* to = memory + ring.stage * S::stage_bytes + S::weight_bytes;
      barrier_wait(&ring.empty[ring.stage], ring.phase ^ 1);
#pragma unroll
      for (int i = 0; i < passes; ++i) {
        const int row = first_row + i * rows_at_once;
        if (row >= S::n) break;
        const bool used = x_row[i] >= 0 && k < a.k;
        copy_sixteen(to + row * 128 + (piece ^ (row % 8)) * 16, a.x + (used ? x_row[i] * a.x_stride + k : 0), used);
      }
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&ring.full[ring.stage]))
                   : "memory");
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");  // no copy outlives its thread
}

__device__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ float remote(const float* address, int rank) {
  uint32_t there;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(address)), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
  return value;
}

// The slices' sums, one block each, added in order. A block adds the groups of eight tokens that are its share.
template <class S, int n>
__device__ void add_slices(const Product& a, Tile tile, std::byte* memory, const float (&sums)[n]) {
  float* mine = reinterpret_cast<float*>(memory) + threadIdx.x;
  named_sync(1, S::consumers);  // every warp's products are done with the stages
#pragma unroll
  for (int i = 0; i < n; ++i) mine[i * S::consumers] = sums[i];
  cluster_sync();
  const int row = tile.row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  for (int group = blockIdx.x % a.slices; group < n / 4; group += a.slices) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float sum = 0;
      for (int slice = 0; slice < a.slices; ++slice) {
        const float part = remote(mine + (group * 4 + e) * S::consumers, slice);
        sum = slice == 0 ? part : sum + part;
      }
      const int y_row = y_row_of<S>(a, tile, group * 8 + quad * 2 + e % 2);
      if (y_row >= 0 && row + e / 2 * 8 < a.n) write_out(a, tile, y_row, row + e / 2 * 8, sum);
    }
  }
  cluster_sync();  // nobody leaves while others read here
}

template <class S>
__device__ void multiply_tiles(const Product& all, std::byte* memory, Ring<S> ring) {
  wait_for_previous();  // y, and in experts which tokens there are
  Product a = all;
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, tiles = tile_count<S>(a);
  const Steps steps = steps_of(a, S::sequential);
  const uint64_t w = operand(shared_address(memory) + group * row_tile * 128),
                 x = operand(shared_address(memory) + S::weight_bytes);
  for (int index = first_tile(a, S::sequential); index < tiles; index += tile_stride(a, S::sequential)) {
    const Tile tile = tile_at<S>(a, index);
    float sums[S::blocks][S::n / 2] = {}, total[1][S::sequential ? S::n / 2 : 1] = {};
    // Asked for now, needed after the products.
    const int y_row = y_row_of<S>(a, tile, threadIdx.x % 128);
    int slice_left = a.slice_steps, fresh = 0;
    for (int step = steps.begin; step < steps.end; ++step) {
      const uint64_t at = uint64_t(ring.stage * S::stage_bytes) >> 4;
      barrier_wait(&ring.full[ring.stage], ring.phase);
      if constexpr (S::grouped) fence_async_proxy();  // gathered tokens are ordinary writes
      wgmma_begin();
#pragma unroll
      for (int k = 0; k < k_step / 16; ++k)
#pragma unroll
        for (int b = 0; b < S::blocks; ++b)
          wgmma_scores(sums[b], w + at + (uint64_t(b * S::groups * row_tile * 128 + k * 32) >> 4),
                       x + at + (uint64_t(k * 32) >> 4), fresh + k);
      wgmma_commit();
      fresh = 1;
      // The stage before is free once its products are done; these ones stay under way.
      wgmma_wait<1>();
      if (lane == 0 && step > steps.begin) barrier_arrive(&ring.empty[(ring.stage + S::stages - 1) % S::stages]);
      ring.advance();
      if constexpr (S::sequential) {
        if (--slice_left == 0 || step + 1 == steps.end) {
          wgmma_wait<0>();
          hold(sums[0]);
#pragma unroll
          for (int i = 0; i < S::n / 2; ++i) total[0][i] = step < a.slice_steps ? sums[0][i] : total[0][i] + sums[0][i];
          slice_left = a.slice_steps, fresh = 0;
        }
      }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int b = 0; b < S::blocks; ++b) hold(sums[b]);
    if (lane == 0) barrier_arrive(&ring.empty[(ring.stage + S::stages - 1) % S::stages]);
    Product here = a;
    here.y = static_cast<std::byte*>(a.y) + int64_t(S::grouped ? 0 : tile.slot) * a.y_head * (a.y_bf16 ? 2 : 4);
    if (S::groups == 1 && !S::sequential && a.slices > 1) {
      add_slices<S>(here, tile, memory, sums[0]);
      continue;
    }
    int* y_rows = reinterpret_cast<int*>(ring.empty + S::stages) + group * S::n;
    named_sync(1 + group, 128);  // the tile before has been written
    if (threadIdx.x % 128 < S::n) y_rows[threadIdx.x % 128] = y_row;
    named_sync(1 + group, 128);
    if constexpr (S::sequential) {
      write_tile<S>(here, tile, y_rows, total);
    } else if constexpr (S::gated) {
      write_gated<S>(here, tile, y_rows, sums);
    } else {
      write_tile<S>(here, tile, y_rows, sums);
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::together)
    multiply(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap tokens, const Product a) {
  extern __shared__ __align__(1024) std::byte memory[];
  Ring<S> ring;
  ring.full = reinterpret_cast<uint64_t*>(memory + S::stages * S::stage_bytes);
  ring.empty = ring.full + S::stages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::stages; ++stage) {
      barrier_init(&ring.full[stage], S::grouped ? 1 + gatherers : 1);
      barrier_init(&ring.empty[stage], S::consumers / 32);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= S::consumers) {
    if constexpr (S::groups == 2) registers_release<72>();
    if (threadIdx.x < S::consumers + 32) {
      if (threadIdx.x == S::consumers) copy_tiles<S>(&weights, &tokens, a, memory, ring);
    } else if constexpr (S::grouped) {
      gather_tokens<S>(a, memory, ring);
    }
  } else {
    if constexpr (S::groups == 2) registers_claim<216>();
    multiply_tiles<S>(a, memory, ring);
  }
}

int processors() {
  static const int count = [] {
    int device = 0, found = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
    return found;
  }();
  return count;
}

struct Operands {
  const void *weight, *x;
  int64_t weight_rows, x_columns, x_stride;
};

template <class S>
void launch(const Operands& o, Product a, int64_t tiles, ExecContext& context) {
  static const cudaError_t raised =
      cudaFuncSetAttribute(multiply<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::shared_bytes);
  if (raised != cudaSuccess) fail("[linear] CUDA: {}", cudaGetErrorString(raised));
  const CUtensorMap weights = S::gated ? gated_map(o.weight, o.weight_rows / a.n, a.n / 2, a.k, k_step, S::rows)
                                       : matrix_map(o.weight, o.weight_rows, a.k, int64_t(a.k) * 2, k_step, S::rows);
  const CUtensorMap tokens =
      S::grouped ? weights : matrix_map(o.x, a.tokens, o.x_columns, o.x_stride * 2, k_step, S::n);
  const int64_t y_element = a.y_bf16 ? 2 : 4;
  a.fours = (S::gated || a.bias == nullptr) && !a.accumulate && a.y_stride % 4 == 0 && a.y_head % 4 == 0 &&
            reinterpret_cast<uintptr_t>(a.y) % uintptr_t(4 * y_element) == 0;
  const bool cut = !S::sequential && a.slices > 1;
  const unsigned blocks =
      unsigned(cut ? tiles * a.slices : std::min<int64_t>(tiles, int64_t(processors()) * S::together));
  launch_kernel("linear", multiply<S>, {blocks, S::threads, S::shared_bytes, cut ? unsigned(a.slices) : 1}, context,
                weights, tokens, a);
}

// Into how many slices along k, by the matrices' shape alone.
int slices_of(int64_t n, int64_t heads, int64_t steps) {
  int slices = 1;
  while (slices < max_slices && blocks_for(n, row_tile) * heads * slices < enough_blocks && steps / (2 * slices) >= 4)
    slices *= 2;
  return slices;
}

void cut(Product& a, int slices) {
  a.steps = int(blocks_for(a.k, k_step));
  a.slice_steps = int(blocks_for(a.steps, slices));
  a.slices = int(blocks_for(a.steps, a.slice_steps));
}

template <int rows, int n>
int64_t tiles_of(Product& a, int64_t tokens) {
  a.row_tiles = int(blocks_for(a.n, rows));
  a.token_tiles = int(blocks_for(tokens, n));
  return int64_t(a.row_tiles) * a.token_tiles * a.heads;
}

template <int n>
void launch_few(const Operands& o, Product& a, ExecContext& context) {
  using Usual = Shape<1, 1, n, false, false>;
  const int64_t tiles = tiles_of<row_tile, n>(a, a.tokens);
  if constexpr (n <= 32) {
    if (tiles * a.slices <= processors() && a.slice_steps > Usual::stages)
      return launch<Shape<1, 1, n, false, false, false, true>>(o, a, tiles, context);
  }
  launch<Usual>(o, a, tiles, context);
}

void launch_dense(const Operands& o, Product a, ExecContext& context) {
  cut(a, slices_of(a.n, a.heads, blocks_for(a.k, k_step)));
  if (a.tokens <= 8) return launch_few<8>(o, a, context);
  if (a.tokens <= 16) return launch_few<16>(o, a, context);
  if (a.tokens <= 32) return launch_few<32>(o, a, context);
  if (a.tokens <= 64) return launch_few<64>(o, a, context);
  if (a.slices == 1) {
    if (const int64_t tiles = tiles_of<256, 128>(a, a.tokens); tiles >= enough_blocks)
      return launch<Shape<2, 2, 128, false, false>>(o, a, tiles, context);
  } else {
    if (const int64_t tiles = tiles_of<128, 128>(a, a.tokens); tiles >= enough_blocks)
      return launch<Shape<2, 1, 128, false, true>>(o, a, tiles, context);
  }
  launch_few<128>(o, a, context);
}

bool aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

std::string supports(const LinearDesc& d) {
  if (d.x != DType::bf16 || d.weight != DType::bf16) return "takes bf16 x and weight";
  if (d.in % 8 != 0) return "takes rows of whole 16 bytes";
  return {};
}
std::string supports_linear(const LinearDesc& d) {
  return supports(d);
}
std::string supports_headwise(const HeadwiseLinearDesc& d) {
  if (d.in % k_step != 0) return fmt::format("takes k of a multiple of {}", k_step);
  return supports(d);
}
std::string supports_grouped(const GroupedLinearDesc& d) {
  return supports(d);
}

void run_linear(const LinearArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  if (!aligned(a.x.data, a.x.strides[0]) || !aligned(a.weight.data, 0)) return cuda::linear.run(a, context);
  const Product product{.bias = a.bias,
                        .y = a.y.data,
                        .y_stride = a.y.strides[0],
                        .n = int32_t(a.weight.n),
                        .k = int32_t(a.weight.k),
                        .tokens = int32_t(a.x.size(0)),
                        .heads = 1,
                        .y_bf16 = a.y.dtype == DType::bf16,
                        .accumulate = a.accumulate};
  launch_dense({a.weight.data, a.x.data, a.weight.n, a.weight.k, a.x.strides[0]}, product, context);
}

void run_headwise(const HeadwiseLinearArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  if (!aligned(a.x.data, a.x.strides[0]) || !aligned(a.weight.data, 0) ||
      a.weight.slot_bytes != a.weight.n * a.weight.k * 2)
    return cuda::headwise_linear.run(a, context);
  const Product product{.y = a.y.data,
                        .y_stride = a.y.strides[0],
                        .n = int32_t(a.weight.n),
                        .k = int32_t(a.weight.k),
                        .tokens = int32_t(a.x.size(0)),
                        .heads = int32_t(a.weight.slots),
                        .x_head = int32_t(a.x.strides[1]),
                        .y_head = int32_t(a.y.strides[1]),
                        .y_bf16 = a.y.dtype == DType::bf16};
  const int64_t columns = (a.weight.slots - 1) * a.x.strides[1] + a.weight.k;
  launch_dense({a.weight.data, a.x.data, a.weight.n * a.weight.slots, columns, a.x.strides[0]}, product, context);
}

template <bool gated, int groups, int blocks, int n>
void launch_experts(const Operands& o, Product a, int64_t most_blocks, ExecContext& context) {
  const int64_t tiles = tiles_of<groups * blocks * row_tile, n>(a, a.block_m) * most_blocks;
  launch<Shape<groups, blocks, n, true, false, gated>>(o, a, tiles, context);
}

bool takes(const GroupedLinearArgs& a) {
  return aligned(a.x.data, a.x.strides[0]) && aligned(a.weight.data, 0) &&
         a.weight.slot_bytes == a.weight.n * a.weight.k * 2;
}

template <bool gated>
void multiply_experts(const GroupedLinearArgs& a, ExecContext& context) {
  Product product{.x = static_cast<const __nv_bfloat16*>(a.x.data),
                  .bias = a.bias,
                  .y = a.y.data,
                  .x_stride = a.x.strides[0],
                  .y_stride = a.y.strides[0],
                  .n = int32_t(a.weight.n),
                  .k = int32_t(a.weight.k),
                  .tokens = int32_t(a.num_pairs),
                  .heads = 1,
                  .y_bf16 = a.y.dtype == DType::bf16,
                  .sorted = a.sorted_token_ids,
                  .expert_ids = a.expert_ids,
                  .num_post_padded = a.num_tokens_post_padded,
                  .x_divisor = int32_t(a.x_divisor),
                  .block_m = int32_t(a.block_m)};
  cut(product, 1);
  const Operands o{a.weight.data, nullptr, a.weight.n * a.weight.slots, 0, 0};
  // As align_capacity(): each slot with any pair wastes at most block_m - 1 rows.
  const int64_t worst = a.num_pairs + std::min(a.num_pairs, a.weight.slots) * (a.block_m - 1);
  const int64_t blocks = (worst + a.block_m - 1) / a.block_m;
  if (a.block_m <= 8) return launch_experts<gated, 1, 1, 8>(o, product, blocks, context);
  if (a.block_m <= 16) return launch_experts<gated, 1, 1, 16>(o, product, blocks, context);
  if (a.block_m <= 32) return launch_experts<gated, 1, 1, 32>(o, product, blocks, context);
  // Few pairs a block leave the matrix units idle whatever the tile, and small tiles spread better.
  const bool many = a.num_pairs / a.weight.slots >= 48;
  if (a.block_m <= 64) {
    return many ? launch_experts<gated, 2, 2, 64>(o, product, blocks, context)
                : launch_experts<gated, 1, 1, 64>(o, product, blocks, context);
  }
  return many ? launch_experts<gated, 2, 2, 128>(o, product, blocks, context)
              : launch_experts<gated, 1, 1, 128>(o, product, blocks, context);
}

void run_grouped(const GroupedLinearArgs& a, ExecContext& context) {
  if (a.num_pairs * a.weight.n == 0) return;
  if (!takes(a)) return cuda::grouped_linear.run(a, context);
  multiply_experts<false>(a, context);
}

std::string supports_gated(const GatedGroupedLinearDesc& d) {
  if (d.activation != Activation::silu) return "takes silu";
  if (d.y != DType::bf16) return "writes bf16";
  if (d.out % 16 != 0) return "takes gates of a multiple of 8 rows";
  return supports(d);
}

void run_gated(const GatedGroupedLinearArgs& a, ExecContext& context) {
  if (a.num_pairs * a.weight.n == 0) return;
  if (takes(a)) return multiply_experts<true>(a, context);
  const Workspace::Scope scope(context.workspace);
  GroupedLinearArgs both = a;
  both.y = context.workspace.alloc(DType::f32, {a.num_pairs, a.weight.n});
  cuda::grouped_linear.run(both, context);
  cuda::gated_activation.run({.x = both.y, .activation = a.activation, .gated = true, .y = a.y}, context);
}

}  // namespace

extern const Implementation<LinearDesc, LinearArgs> linear{"sm90.linear", Level::sm90, supports_linear, run_linear};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{"sm90.headwise_linear", Level::sm90,
                                                                                    supports_headwise, run_headwise};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{"sm90.grouped_linear", Level::sm90,
                                                                                 supports_grouped, run_grouped};
extern const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs> gated_grouped_linear{
    "sm90.gated_grouped_linear", Level::sm90, supports_gated, run_gated};

}  // namespace medley::sm90
