// Absorbed MLA for few requests: a piece of 512 keys goes to a cluster of eight blocks. Each block scores the keys of
// one step of 64, all exchange the largest scores, then the weights, through distributed shared memory, and each adds
// the weighted values of the whole piece in its 64 of the 512 columns. Every sum is taken in the order in which one
// block takes it (mla_decode.cu, `Halves`), so the bits are the same, and which kernel runs may depend on the batch.
//
// Three warpgroups: one scores, one adds values, and while they work on one piece the third brings the next.
#include <algorithm>

#include "kernels/sm90/mla.h"

namespace medley::sm90::absorbed {
namespace {

constexpr int ranks = 8;                             // blocks of a cluster; steps of a piece; runs of value columns
constexpr int threads = 3 * 128;                     // scores, values, copies
constexpr int query_tile_bytes = spread_rows * 128;  // of 64 columns; the product reads on to row 64: rows nobody uses
constexpr int query_bytes = tiles * query_tile_bytes + (rows - spread_rows) * 128;
constexpr int parts = 3;  // barriers of the keys: the product starts when a third has landed
constexpr int part_tiles = tiles / parts;
constexpr int query_loaders = 96;
static_assert(latent == ranks * tile_columns);

// What a rank's step of a piece sends to all: a lane's own rows and keys, as the lane of the same number needs them.
struct Step {
  uint4 weights[keys / 16][32];  // bf16, one operand of 16 keys each
  float4 added[32];              // sums of the weights: two halves of the keys x two rows
  float2 rescale[32], highest[32];
};

struct Shared {
  std::byte k[operand_bytes];
  std::byte v[ranks][tile_bytes];
  std::byte q[query_bytes];
  Step steps[2][ranks];
  float highest[2][ranks][spread_rows];  // largest scores of each step
  uint64_t keys_full[parts], keys_empty, values_full, values_empty, queries_full, queries_empty;
  uint64_t highest_full[2], steps_full[2], steps_empty[2];
};
constexpr int shared_bytes = sizeof(Shared);
static_assert(query_tile_bytes % 1024 == 0 && shared_bytes <= 227 * 1024);

// Calls what(work, number) for the cluster's pieces in order.
template <class What>
__device__ void for_each_piece(const Mla& a, const What& what) {
  int number = 0;
  for (int index = blockIdx.x / ranks; index < work_items(a); index += gridDim.x / ranks) {
    Work work;
    if (open_work(a, index, work)) what(work, number++);
  }
}

// One warp: the block's 64 keys, and all keys' part of its value columns.
__device__ void feed(const CUtensorMap* map, const Mla& a, Shared& shared, int rank) {
  const int copies = keys / a.copy_rows, lane = threadIdx.x % 32;
  for_each_piece(a, [&](const Work& work, int number) {
    const int32_t* table = a.block_table + work.row * a.table_stride;
    // Past the end: outside the tensor, which the copy engine reads as zeros.
    const auto row_of = [&](int key) {
      return key < work.end ? table[key / a.tokens_per_block] + key % a.tokens_per_block : -keys;
    };
    const uint32_t free = (number & 1) ^ 1;
    const int run = lane % copies, tile = lane / copies;
    const int row = row_of(work.begin + rank * keys + run * a.copy_rows);
    const int steps = (work.end - work.begin + keys - 1) / keys;
    barrier_wait(&shared.keys_empty, free);
    for (int part = 0; part < parts; ++part) {
      if (lane == 0) barrier_expect(&shared.keys_full[part], operand_bytes / parts);
      __syncwarp();
      const int column = part * part_tiles + tile;
      if (tile < part_tiles)
        copy_box(shared.k + column * tile_bytes + run * a.copy_rows * 128, map, column * tile_columns, row,
                 &shared.keys_full[part]);
    }
    barrier_wait(&shared.values_empty, free);
    if (lane == 0) barrier_expect(&shared.values_full, steps * tile_bytes);
    __syncwarp();
    for (int item = lane; item < steps * copies; item += 32) {
      const int first = item * a.copy_rows;
      copy_box(shared.v[0] + first * 128, map, rank * tile_columns, row_of(work.begin + first), &shared.values_full);
    }
  });
}

// Three warps: 16 query rows as bf16, swizzled, zeros past the last. All loads of a piece are in flight together, and
// while the queries before are still in use: one after the other they took longer than the keys.
__device__ void load_queries(const Mla& a, Shared& shared) {
  constexpr int fours = key_dim / 4, loads = fours * spread_rows / query_loaders;
  static_assert(loads * query_loaders == fours * spread_rows);
  const int thread = threadIdx.x % 128 - 32;
  for_each_piece(a, [&](const Work& work, int number) {
    float4 values[loads];
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int item = thread + i * query_loaders, row = item / fours;
      const int token = work.token + (work.first + row) / a.heads, head = (work.first + row) % a.heads;
      values[i] = make_float4(0, 0, 0, 0);
      if (row < work.count)
        values[i] = __ldg(reinterpret_cast<const float4*>(a.q + token * a.q_token + head * a.q_head) + item % fours);
    }
    barrier_wait(&shared.queries_empty, (number & 1) ^ 1);
#pragma unroll
    for (int i = 0; i < loads; ++i) {
      const int item = thread + i * query_loaders, row = item / fours, four = item % fours;
      const __nv_bfloat162 low = __floats2bfloat162_rn(values[i].x, values[i].y),
                           high = __floats2bfloat162_rn(values[i].z, values[i].w);
      uint2 bits;
      memcpy(&bits.x, &low, 4);
      memcpy(&bits.y, &high, 4);
      std::byte* to =
          shared.q + four / 16 * query_tile_bytes + row * 128 + (four % 16 / 2 ^ row % 8) * 16 + four % 2 * 8;
      *reinterpret_cast<uint2*>(to) = bits;
    }
    fence_async_proxy();
    barrier_arrive(&shared.queries_full);
  });
}

__device__ void multiply_keys(Shared& shared, uint32_t parity, float (&scores)[32]) {
  const uint64_t q = operand(shared_address(shared.q)), k = operand(shared_address(shared.k));
#pragma unroll
  for (int part = 0; part < parts; ++part) {
    barrier_wait(&shared.keys_full[part], parity);
    if (part == 0) hold(scores);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < part_tiles * 4; ++step) {
      const int tile = part * part_tiles + step / 4, within = step % 4 * 32;
      wgmma_scores(scores, q + ((tile * query_tile_bytes + within) >> 4), k + ((tile * tile_bytes + within) >> 4),
                   part + step);
    }
  }
  wgmma_commit();
  wgmma_wait<0>();
  hold(scores);
}

// The lane's rows are g and g + 8, its keys 8 j + 2 quad + {0, 1}. What alternates between two slots needs no other
// word from the receivers: nobody is two pieces ahead of another.
__device__ void exchange(const Mla& a, Shared& shared, const Work& work, int number, int rank, float (&scores)[32]) {
  const int lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4, slot = number % 2;
  const uint32_t phase = number / 2 & 1;
  int limit[2];
  for (int half = 0; half < 2; ++half)
    limit[half] = min(work.end, work.computed + (work.first + min(g + half * 8, work.count - 1)) / a.heads + 1);
  mask(scores, work.begin + rank * keys, quad, limit);
  float highest[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 32; ++i) highest[i / 2 % 2] = fmaxf(highest[i / 2 % 2], scores[i]);
  if (lane == 0) barrier_expect(&shared.highest_full[slot], sizeof shared.highest[slot]);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    highest[half] = quad_max(highest[half]) * a.scale_log2;
#pragma unroll
    for (int to = quad; to < ranks; to += 4)  // a quad's four lanes know the same
      store_remote(shared_address_of(&shared.highest[slot][rank][g + half * 8], to), highest[half],
                   shared_address_of(&shared.highest_full[slot], to));
  }
  barrier_wait_cluster(&shared.highest_full[slot], phase);
  barrier_wait_cluster(&shared.steps_empty[slot], phase ^ 1);
  if (work.begin + rank * keys >= work.end) {
    if (lane == 0) barrier_arrive(&shared.steps_full[slot]);
    return;
  }

  float base[2], rescale[2], added[4] = {0, 0, 0, 0};
  highest[0] = highest[1] = -INFINITY;
  for (int step = 0; step <= rank; ++step)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      base[half] = raise(shared.highest[slot][step][g + half * 8], highest[half], rescale[half]);
  uint32_t weights[keys / 16][4];
#pragma unroll
  for (int i = 0; i < 32; i += 2) {
    const int half = i / 2 % 2, part = i / 16;
    const float x = exp2(fmaf(scores[i], a.scale_log2, -base[half])),
                y = exp2(fmaf(scores[i + 1], a.scale_log2, -base[half]));
    added[part * 2 + half] += x + y;
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    memcpy(&weights[i / 8][i / 2 % 4], &both, 4);
  }
  Step& mine = shared.steps[slot][rank];
#pragma unroll
  for (int i = 0; i < keys / 16; ++i)
    mine.weights[i][lane] = make_uint4(weights[i][0], weights[i][1], weights[i][2], weights[i][3]);
  mine.added[lane] = make_float4(added[0], added[1], added[2], added[3]);
  mine.rescale[lane] = make_float2(rescale[0], rescale[1]);
  mine.highest[lane] = make_float2(highest[0], highest[1]);
  fence_async_proxy();
  __syncwarp();
  if (lane == rank) {
    barrier_arrive(&shared.steps_full[slot]);
  } else if (lane < ranks) {
    copy_remote(shared_address_of(&mine, lane), &mine, sizeof mine, shared_address_of(&shared.steps_full[slot], lane));
  }
}

__device__ void score(const Mla& a, Shared& shared, int rank) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  cluster_wait();
  for_each_piece(a, [&](const Work& work, int number) {
    float scores[32] = {};
    barrier_wait(&shared.queries_full, number & 1);
    multiply_keys(shared, number & 1, scores);
    if (lane == 0) barrier_arrive(&shared.queries_empty), barrier_arrive(&shared.keys_empty);
    if (warp == 0) exchange(a, shared, work, number, rank, scores);  // the others' rows are nobody's
    __syncwarp();
  });
}

__device__ void write_rows(const Mla& a, const Work& work, int rank, const float (&lse)[2], const float (&inverse)[2],
                           const float (&out)[32]) {
  const int g = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  const int piece = work.begin / a.piece_tokens, column = rank * tile_columns + quad * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = g + half * 8;
    if (row >= work.count) continue;
    const int local = (work.first + row) / a.heads, head = (work.first + row) % a.heads;
    const int token = work.token + local, last = (work.computed + local) / a.piece_tokens;
    if (piece > last) continue;  // keys after the row's position: not read
    const int64_t item = partial_item(a, token, head) + int64_t(piece) * a.heads;
    const int64_t at = token * a.y_token + head * a.y_head + column;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = out[j * 4 + half * 2] * inverse[half], y = out[j * 4 + half * 2 + 1] * inverse[half];
      if (last == 0) {
        write_two(a, at + j * 8, x, y);
      } else {
        *reinterpret_cast<float2*>(a.partial + item * latent + column + j * 8) = make_float2(x, y);
      }
    }
    if (last != 0 && rank == 0 && quad == 0) a.partial_lse[item] = lse[half];
  }
}

// Four steps' products at a time, which needs that the sums keep their scale within them, or one.
__device__ void multiply_values(const Step* steps, int count, bool has_rows, uint64_t v, float (&out)[32],
                                float (&total)[4]) {
  constexpr int at_once = 4;
  const int lane = threadIdx.x % 32;
  uint32_t weights[at_once][keys / 16][4];
  float2 rescale[at_once];
  bool alike = count >= at_once;
#pragma unroll
  for (int step = 0; step < at_once; ++step) {
    const Step& from = steps[min(step, count - 1)];
    rescale[step] = from.rescale[lane];
    if (step > 0) alike = alike && rescale[step].x == 1.0f && rescale[step].y == 1.0f;
#pragma unroll
    for (int i = 0; i < keys / 16; ++i) {
      uint4 four = make_uint4(0, 0, 0, 0);
      if (has_rows) four = from.weights[i][lane];
      memcpy(weights[step][i], &four, 16);
    }
    if (step >= count) continue;
    const float4 added = from.added[lane];
    total[0] = fmaf(total[0], rescale[step].x, added.x), total[1] = fmaf(total[1], rescale[step].y, added.y);
    total[2] = fmaf(total[2], rescale[step].x, added.z), total[3] = fmaf(total[3], rescale[step].y, added.w);
  }
  const auto scale = [&](float2 by) {
#pragma unroll
    for (int i = 0; i < 32; ++i) out[i] *= i / 2 % 2 == 0 ? by.x : by.y;
  };
  const auto start = [&](int step) {
#pragma unroll
    for (int i = 0; i < keys / 16; ++i)
      wgmma_values(out, weights[step][i], v + ((step * tile_bytes + i * 16 * 128) >> 4));
  };
  if (__all_sync(0xffffffffu, alike)) {
    scale(rescale[0]);
    hold(out);
    wgmma_begin();
#pragma unroll
    for (int step = 0; step < at_once; ++step) start(step);
    wgmma_commit();
    wgmma_wait<0>();
    hold(out);
    return;
  }
#pragma unroll
  for (int step = 0; step < at_once; ++step) {
    if (step >= count) continue;
    scale(rescale[step]);
    hold(out);
    wgmma_begin();
    start(step);
    wgmma_commit();
    wgmma_wait<0>();
    hold(out);
  }
}

__device__ void add_values(const Mla& a, Shared& shared, int rank) {
  const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
  cluster_wait();
  for_each_piece(a, [&](const Work& work, int number) {
    const int slot = number % 2, steps = (work.end - work.begin + keys - 1) / keys;
    const int others = steps - (rank < steps ? 1 : 0);  // the own step comes without a copy
    if (threadIdx.x % 128 == 0) barrier_expect(&shared.steps_full[slot], others * uint32_t(sizeof(Step)));
    barrier_wait(&shared.values_full, number & 1);
    const int unseen = steps * keys - (work.end - work.begin);
    if (unseen > 0) {  // rows that no query sees may hold anything, also NaN, and 0 * NaN is NaN
      auto* rest = reinterpret_cast<uint4*>(shared.v[0] + steps * tile_bytes - unseen * 128);
      for (int i = threadIdx.x % 128; i < unseen * 8; i += 128) rest[i] = make_uint4(0, 0, 0, 0);
      fence_async_proxy();
      named_sync(1, 128);
    }
    barrier_wait_cluster(&shared.steps_full[slot], number / 2 & 1);

    const Step* from = shared.steps[slot];
    float out[32], total[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 32; ++i) out[i] = 0;
    for (int first = 0; first < steps; first += 4)  // only the first warp's rows are somebody's
      multiply_values(from + first, steps - first, warp == 0, operand(shared_address(shared.v[first])), out, total);
    const float2 highest = from[steps - 1].highest[lane];
    named_sync(1, 128);
    if (lane == 0) barrier_arrive(&shared.values_empty);
    if (warp != 0) return;
    if (lane < ranks) barrier_arrive_remote(shared_address_of(&shared.steps_empty[slot], lane));
    const float sum[2] = {quad_sum(total[0]) + quad_sum(total[2]), quad_sum(total[1]) + quad_sum(total[3])};
    const float lse[2] = {highest.x + log2f(sum[0]), highest.y + log2f(sum[1])};
    const float inverse[2] = {sum[0] > 0 ? 1.0f / sum[0] : 0.0f, sum[1] > 0 ? 1.0f / sum[1] : 0.0f};
    write_rows(a, work, rank, lse, inverse, out);
  });
}

__global__ void __cluster_dims__(ranks) __launch_bounds__(threads, 1)
    spread(const __grid_constant__ CUtensorMap map, const Mla a) {
  extern __shared__ __align__(1024) std::byte memory[];  // as the tiles need
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int rank = int(cluster_rank());
  if (threadIdx.x == 0) {
    for (uint64_t& barrier : shared.keys_full) barrier_init(&barrier, 1);
    barrier_init(&shared.values_full, 1);
    for (uint64_t* barrier : {&shared.keys_empty, &shared.values_empty, &shared.queries_empty})
      barrier_init(barrier, 4);
    barrier_init(&shared.queries_full, query_loaders);
    for (int slot = 0; slot < 2; ++slot)
      barrier_init(&shared.highest_full[slot], 1), barrier_init(&shared.steps_full[slot], 2),
          barrier_init(&shared.steps_empty[slot], ranks);
    fence_barrier_init();
  }
  __syncthreads();
  cluster_arrive();  // what reaches other blocks waits for them; copies and queries need not
  wait_for_previous();
  let_next_start();
  if (threadIdx.x < 128) {
    score(a, shared, rank);
  } else if (threadIdx.x < 256) {
    add_values(a, shared, rank);
  } else if (threadIdx.x < 256 + 32) {
    feed(&map, a, shared, rank);
    __syncwarp();
    cluster_wait();
  } else {
    load_queries(a, shared);
    __syncwarp();
    cluster_wait();
  }
  __syncwarp();
  cluster_arrive();  // nobody leaves while others write to it
  cluster_wait();
}

}  // namespace

int spread_clusters() {
  static const int clusters = [] {
    cudaError_t status = cudaFuncSetAttribute(spread, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    MEDLEY_CHECK(status == cudaSuccess);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(ranks), config.blockDim = dim3(threads), config.dynamicSmemBytes = shared_bytes;
    int count = 0;
    status = cudaOccupancyMaxActiveClusters(&count, spread, &config);
    MEDLEY_CHECK(status == cudaSuccess);
    return count;
  }();
  return clusters;
}

void attend_spread(const CUtensorMap& map, const Mla& a, ExecContext& context) {
  const int64_t items = int64_t(a.row_tiles) * a.num_rows * a.groups;
  const int64_t clusters = std::min<int64_t>(items, spread_clusters());
  launch_kernel("paged_attention", spread, {unsigned(clusters * ranks), threads, shared_bytes}, context, map, a);
}

}  // namespace medley::sm90::absorbed
