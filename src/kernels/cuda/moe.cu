// Routing, alignment and the weighted sum. A token is one warp's work in route; align is a counting sort that keeps the
// pairs' order, in one launch for up to 32,768 pairs.
#include "kernels/moe.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <utility>

#include "kernels/cuda/launch.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr int64_t largest_experts = 1024;
constexpr unsigned all = 0xffffffffu;

// Floats as integers in the same order, for the warp's reduction instruction; NaN is the largest. -0 becomes 0.
__device__ unsigned ordered(float value) {
  const int bits = __float_as_int(value + 0.0f);
  return unsigned(bits ^ (bits >> 31 | INT_MIN));
}
__device__ float unordered(unsigned key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return value;
}
constexpr int route_warps = 4, most_each = 32;

// 1 / x and x / y as the division has them where neither the operands nor the result come near the ends of what a float
// holds, without its branches: eight divisions that do not wait for each other.
__device__ float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return fmaf(r, fmaf(-x, r, 1.0f), r);
}
__device__ float sigmoid_of(float x) {
  const float sum = 1.0f + expf(-x);
  const bool large = sum > 0x1p100f;
  const float r = reciprocal(large ? fminf(sum, 0x1.fp127f) * 0x1p-32f : sum);
  return large ? r * 0x1p-32f : r;
}
__device__ float quotient(float x, float y, float reciprocal_of_y) {
  const float q = x * reciprocal_of_y;
  return fmaf(fmaf(-y, q, x), reciprocal_of_y, q);
}

// One warp a token, a lane `each` neighbouring experts, at most `most`, in registers. A group is 2^shift lanes: the
// best two of its keys, the rank of its value among all groups', and its lanes' keys where it is not open.
template <int most>
__device__ void close_groups(unsigned (&keys)[most], const RoutingRule& rule, int shift) {
  const int group = int(threadIdx.x % 32) >> shift;
  unsigned first = 0, second = 0;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    second = max(second, min(first, keys[j]));
    first = max(first, keys[j]);
  }
  for (int mask = 1; mask < 1 << shift; mask *= 2) {
    const unsigned other_first = __shfl_xor_sync(all, first, mask), other_second = __shfl_xor_sync(all, second, mask);
    second = max(max(second, other_second), min(first, other_first));
    first = max(first, other_first);
  }
  // A group of one expert has no second.
  unsigned value = first;
  if (rule.group_score == GroupScore::top2_sum && second != 0) value = ordered(unordered(first) + unordered(second));
  int rank = 0;
  for (int some = 0; some < rule.groups; some += 4)
#pragma unroll
    for (int g = some; g < some + 4; ++g) {  // exchanges that do not wait for each other
      const unsigned other = __shfl_sync(all, value, g << shift & 31);
      rank += (g < rule.groups ? other : 0) + (g < group ? 1 : 0) > value;
    }
  if (rank < rule.top_groups) return;
#pragma unroll
  for (int j = 0; j < most; ++j)
    if (keys[j] != 0) keys[j] = ordered(-INFINITY);
}

// Which two are exchanged where the second is the larger, one pair after the other: Batcher's odd-even merge sort.
template <int most>
struct Network {
  int pairs = 0, upper[most * 8] = {}, lower[most * 8] = {};

  constexpr Network() {
    for (int run = 1; run < most; run *= 2)
      for (int step = run; step >= 1; step /= 2)
        for (int first = step % run; first + step < most; first += 2 * step)
          for (int i = first; i < first + step && i + step < most; ++i)
            if (i / (2 * run) == (i + step) / (2 * run)) upper[pairs] = i, lower[pairs++] = i + step;
  }
};

__device__ void order(unsigned& upper, unsigned& lower) {
  const unsigned larger = max(upper, lower);
  lower = min(upper, lower);
  upper = larger;
}
template <int most, size_t... pair>
__device__ void sort(unsigned (&values)[most], std::index_sequence<pair...>) {
  constexpr Network<most> network;
  (order(values[network.upper[pair]], values[network.lower[pair]]), ...);
}

// Where a token's experts and their weights go.
struct Routing {
  const float* logits;
  int64_t logits_stride;
  const float* bias;
  RoutingRule rule;
  int each;         // experts a lane
  int group_shift;  // a group's lanes are a power of two: which
  int64_t tokens;
  int32_t* ids;
  int64_t ids_stride;
  float* weights;
  int64_t weights_stride;
};

// Two words of shared memory, without a branch.
__device__ void store_where(bool condition, uint32_t to, int first, float second) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %0, 0; @p st.shared.v2.b32 [%1], {%2, %3};}" ::"r"(unsigned(condition)),
               "r"(to), "r"(first), "r"(__float_as_int(second))
               : "memory");
}

// Token t.
template <int most, bool fours>
__device__ void route_token(const Routing& a, int64_t t, int2* chosen) {
  const RoutingRule& rule = a.rule;
  const int lane = threadIdx.x % 32, first = lane * a.each, count = min(a.each, max(rule.experts - first, 0));
  float scores[most], added[most];
#pragma unroll
  for (int j = 0; j < most; ++j) added[j] = a.bias != nullptr && j < count ? a.bias[first + j] : 0.0f;
  wait_for_previous();
  const float* logits = a.logits + t * a.logits_stride + first;
#pragma unroll
  for (int j = 0; j < most; ++j) {
    if constexpr (fours) {
      if (j % 4 != 0) continue;
      const float4 four = j < count ? *reinterpret_cast<const float4*>(logits + j)
                                    : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      scores[j] = four.x, scores[j + 1] = four.y, scores[j + 2] = four.z, scores[j + 3] = four.w;
    } else {
      scores[j] = j < count ? logits[j] : -INFINITY;
    }
  }
  if (rule.score == RouterScore::softmax) {
    float highest = -INFINITY, total = 0;
#pragma unroll
    for (int j = 0; j < most; ++j) highest = fmaxf(highest, scores[j]);
    highest = warp_max(highest);
#pragma unroll
    for (int j = 0; j < most; ++j) total += scores[j] = expf(scores[j] - highest);
    total = warp_sum(total);
    const float inverse = reciprocal(total);
#pragma unroll
    for (int j = 0; j < most; ++j) scores[j] = quotient(scores[j], total, inverse);
  }
  if (rule.score == RouterScore::sigmoid) {
#pragma unroll
    for (int j = 0; j < most; ++j) scores[j] = sigmoid_of(scores[j]);
  }
  unsigned keys[most];  // 0: nothing there, or taken
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const float value = scores[j] + added[j];
    // A broken token routes somewhere and harms itself only.
    keys[j] = j >= count ? 0 : ordered(isnan(value) ? -INFINITY : value);
  }
  if (rule.group_score != GroupScore::none && rule.top_groups < rule.groups) close_groups(keys, rule, a.group_shift);

  // The lanes rank what they have; then the best of their best again and again, ties to the lower lane.
  unsigned ranked[most], last = 0;
#pragma unroll
  for (int j = 0; j < most; ++j) ranked[j] = keys[j];
  sort(ranked, std::make_index_sequence<size_t(Network<most>().pairs)>());  // descending
  const unsigned self = 1u << lane;
  int own = 0, place = 0;  // how many are chosen here, and in lower lanes
  for (int k = 0; k < rule.top_k; ++k) {
    last = __reduce_max_sync(all, ranked[0]);
    const unsigned equal = __ballot_sync(all, ranked[0] == last), winner = equal & (0u - equal);
    const bool won = winner == self;
    own += won, place += winner < self;
#pragma unroll
    for (int j = 0; j + 1 < most; ++j) ranked[j] = won ? ranked[j + 1] : ranked[j];
    ranked[most - 1] = won ? 0 : ranked[most - 1];
  }
  // The chosen are those above the last one, and of those like it the first ones. Lane k gets the k-th in ascending
  // order of expert.
  unsigned taken = 0, like = 0;
#pragma unroll
  for (int j = 0; j < most; ++j) taken |= (keys[j] > last ? 1u : 0u) << j, like |= (keys[j] == last ? 1u : 0u) << j;
  for (int missing = own - __popc(taken); missing > 0; --missing, like &= like - 1) taken |= like & (0u - like);
  uint32_t to = uint32_t(__cvta_generic_to_shared(chosen + place));
#pragma unroll
  for (int j = 0; j < most; ++j) {
    const bool mine = taken >> j & 1;
    store_where(mine, to, first + j, scores[j]);
    to += mine ? uint32_t(sizeof(int2)) : 0;
  }
  __syncwarp();
  const bool mine = lane < rule.top_k;
  const int2 my_choice = mine ? chosen[lane] : make_int2(0, __float_as_int(-INFINITY));
  float weight = __int_as_float(my_choice.y);
  if (rule.score == RouterScore::softmax_of_chosen) {
    weight = expf(weight - warp_max(weight));  // 0 in the lanes past top_k
    weight /= warp_sum(weight);
  }
  float divisor = 1;
  if (rule.renormalize) {
    divisor = warp_sum(mine ? weight : 0.0f);
    if (rule.score == RouterScore::sigmoid) divisor += rule.sum_epsilon;
  }
  if (!mine) return;
  a.ids[t * a.ids_stride + lane] = my_choice.x;
  a.weights[t * a.weights_stride + lane] = weight / divisor * rule.scaling;
}

template <int most, bool fours>
__global__ void __launch_bounds__(route_warps * 32) route_tokens(const Routing a) {
  __shared__ int2 chosen[route_warps][32];
  let_next_start();
  const int warp = threadIdx.x / 32;
  const int64_t t = int64_t(blockIdx.x) * route_warps + warp;
  if (t < a.tokens) route_token<most, fours>(a, t, chosen[warp]);
}

// Experts a lane: few, and with groups a part of one such that it has a power of two of lanes. 0: there is no such
// part.
int experts_a_lane(const RoutingRule& rule) {
  int each = (rule.experts + 31) / 32;
  if (rule.group_score == GroupScore::none || rule.top_groups >= rule.groups) return each;
  const int size = rule.experts / rule.groups;
  const auto fits = [&] { return size % each == 0 && (size / each & (size / each - 1)) == 0; };
  while (each <= size && !fits()) ++each;
  return each <= std::min(size, most_each) ? each : 0;
}

std::string supports_route(const RouteDesc& d) {
  if (d.rule.top_k > 32) return "more than 32 experts a token";
  if (d.rule.groups > 32) return "more than 32 groups";
  if (d.rule.experts > largest_experts) return fmt::format("more than {} experts", largest_experts);
  if (experts_a_lane(d.rule) == 0) return fmt::format("groups of {} experts", d.rule.experts / d.rule.groups);
  return {};
}

Routing routing_of(const RouteArgs& a) {
  const int each = experts_a_lane(a.rule);
  int group_shift = 0;
  while (a.rule.groups > 0 && each << group_shift < a.rule.experts / a.rule.groups) ++group_shift;
  return {.logits = data_of<float>(a.logits),
          .logits_stride = a.logits.strides[0],
          .bias = a.correction_bias,
          .rule = a.rule,
          .each = each,
          .group_shift = group_shift,
          .tokens = a.logits.size(0),
          .ids = data_of<int32_t>(a.topk_ids),
          .ids_stride = a.topk_ids.strides[0],
          .weights = data_of<float>(a.topk_weights),
          .weights_stride = a.topk_weights.strides[0]};
}

// Logits can be read four at a time.
bool in_fours(const Routing& a) {
  return a.each % 4 == 0 && a.rule.experts % 4 == 0 && a.logits_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.logits) % 16 == 0;
}

template <int most>
void launch_route(const Routing& a, ExecContext& context) {
  launch_kernel("route", in_fours(a) ? route_tokens<most, true> : route_tokens<most, false>,
                {blocks_for(a.tokens, route_warps), route_warps * 32}, context, a);
}

void run_route(const RouteArgs& args, ExecContext& context) {
  const Routing a = routing_of(args);
  if (a.tokens == 0) return;
  if (a.each <= 4) return launch_route<4>(a, context);
  if (a.each <= 8) return launch_route<8>(a, context);
  if (a.each <= 16) return launch_route<16>(a, context);
  launch_route<32>(a, context);
}

// align: a block's chunk of pairs is `runs` for each of its threads. A pair is a bit in its slot's mask: how many pairs
// of the slot come before it in the chunk are bits set below it. Chunks learn of each other's counts in a cluster, or
// where they are too many for one, from a launch that counted first.
enum class Chunks { one, cluster, counted };
constexpr int align_threads = 1024;
constexpr int64_t most_slots = align_threads, most_cluster = 8;

__device__ int slot_of(const int32_t* ids, const int32_t* expert_to_slot, int64_t pair, int64_t pairs) {
  if (pair >= pairs) return -1;
  return expert_to_slot != nullptr ? expert_to_slot[ids[pair]] : ids[pair];
}

template <int runs>
__global__ void __launch_bounds__(align_threads)
    count_pairs(const int32_t* ids, int64_t pairs, const int32_t* expert_to_slot, int slots, int32_t* counts) {
  extern __shared__ int mine[];  // [slots]
  let_next_start();
  for (int s = threadIdx.x; s < slots; s += align_threads) mine[s] = 0;
  wait_for_previous();
  __syncthreads();
  const int64_t first = int64_t(blockIdx.x) * runs * align_threads + threadIdx.x;
#pragma unroll
  for (int i = 0; i < runs; ++i)
    if (const int slot = slot_of(ids, expert_to_slot, first + i * align_threads, pairs); slot >= 0)
      atomicAdd(&mine[slot], 1);
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += align_threads) counts[int64_t(blockIdx.x) * slots + s] = mine[s];
}

// In shared memory. A quarter of a slot's mask is a thread's work: quarters lie so that neighbours' banks differ.
template <int runs>
struct AlignMemory {
  static constexpr int words = 32 * runs, quarter = 8 * runs, gap = runs > 1 ? 8 : 0;
  static constexpr int stride = words + 3 * gap + 1;
  uint16_t* before;                        // [slots][words]: bits set in the words before
  unsigned* masks;                         // [slots][stride]
  int *counts, *totals, *begins, *starts;  // [slots]: of this chunk, of all, where the slot begins and the chunk in it

  __device__ AlignMemory(int4* memory, int slots) {
    before = reinterpret_cast<uint16_t*>(memory);
    masks = reinterpret_cast<unsigned*>(before + slots * words);
    counts = reinterpret_cast<int*>(masks + slots * stride);
    totals = counts + slots, begins = totals + slots, starts = begins + slots + 1;
  }
  __device__ unsigned* mask(int slot, int word) const { return masks + slot * stride + word + word / quarter * gap; }
  __device__ void clear(int slots) const {
    for (int i = threadIdx.x; i < slots * stride; i += align_threads) masks[i] = 0;
  }
  static int64_t bytes(int64_t slots) { return (4 * slots + 1) * 4 + slots * words * 2 + slots * stride * 4; }
};

__device__ void cluster_arrive() {
  __syncwarp();
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ void cluster_wait() {
  __syncwarp();
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
__device__ int of_block(const int* address, int rank) {  // of this cluster
  int value = 0;
#if __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"(uint32_t(__cvta_generic_to_shared(address))), "r"(rank));
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(value) : "r"(there) : "memory");
#endif
  return value;
}

struct Alignment {
  const int32_t* ids;
  int64_t pairs;
  const int32_t* expert_to_slot;
  int experts, slots;
  int block_m, block_shift;  // 2^block_shift is block_m, or it is -1
  const int32_t* counts_of_chunks;
  int32_t *sorted, *expert_ids, *num_post_padded;
};

// The masks of this block's chunk are there, and slot[i] of the thread's i-th pair.
template <int runs, Chunks chunks>
__device__ void place_pairs(const Alignment& a, const AlignMemory<runs>& m, int64_t first, const int (&slot)[runs]) {
  using Memory = AlignMemory<runs>;
  __shared__ int warp_totals[align_threads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, slots = a.slots;
  // Whole warps: slots past the last have no mask, and no count.
  for (int at = threadIdx.x / 4; at / 8 * 8 < slots; at += align_threads / 4) {
    const int part = threadIdx.x % 4;
    int bits[Memory::quarter], own = 0;
#pragma unroll
    for (int w = 0; w < Memory::quarter; ++w) {
      bits[w] = own;
      own += at < slots ? __popc(*m.mask(at, part * Memory::quarter + w)) : 0;
    }
    int upto = own;
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      const int other = __shfl_up_sync(all, upto, step, 4);
      if (part >= step) upto += other;
    }
    if (at >= slots) continue;
    const unsigned sum = unsigned(upto - own);
    int4* to = reinterpret_cast<int4*>(m.before + at * Memory::words + part * Memory::quarter);
#pragma unroll
    for (int w = 0; w < Memory::quarter; w += 8) {
      const auto two = [&](int i) { return int((sum + bits[i]) | (sum + bits[i + 1]) << 16); };
      to[w / 8] = make_int4(two(w), two(w + 2), two(w + 4), two(w + 6));
    }
    if (part == 3) m.counts[at] = upto;
  }
  if constexpr (chunks == Chunks::cluster) {
    cluster_arrive();
    cluster_wait();
  } else {
    __syncthreads();
  }
  // Where the slots begin, in blocks: a thread a slot.
  const int s = threadIdx.x;
  int total = 0, earlier = 0;
  if (s < slots) {
    if constexpr (chunks == Chunks::one) total = m.counts[s];
    if constexpr (chunks == Chunks::cluster) {
#pragma unroll
      for (int c = 0; c < int(most_cluster); ++c) {
        const int count = c < int(gridDim.x) ? of_block(&m.counts[s], c) : 0;
        total += count;
        if (c < int(blockIdx.x)) earlier += count;
      }
    }
    if constexpr (chunks == Chunks::counted) {
#pragma unroll 16
      for (int c = 0; c < int(gridDim.x); ++c) {
        const int count = a.counts_of_chunks[int64_t(c) * slots + s];
        total += count;
        if (c < int(blockIdx.x)) earlier += count;
      }
    }
  }
  if constexpr (chunks == Chunks::cluster) cluster_arrive();
  const unsigned padded = unsigned(total + a.block_m - 1);
  const int blocks = int(a.block_shift >= 0 ? padded >> a.block_shift : padded / unsigned(a.block_m));
  int upto = blocks;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(all, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_totals[warp] = upto;
  __syncthreads();
  const int before = int(__reduce_add_sync(all, unsigned(lane < warp ? warp_totals[lane] : 0)));
  if (s < slots) {
    const int begin = before + upto - blocks;
    m.totals[s] = total;
    m.begins[s] = begin;
    m.starts[s] = begin * a.block_m + earlier;
    if (s == slots - 1) m.begins[slots] = begin + blocks;
  }
  __syncthreads();
  if (blockIdx.x == 0 && threadIdx.x == 0) *a.num_post_padded = m.begins[slots] * a.block_m;
#pragma unroll
  for (int i = 0; i < runs; ++i)
    if (slot[i] >= 0) {
      const int word = i * 32 + warp;
      const unsigned below = *m.mask(slot[i], word) & ((1u << lane) - 1);
      a.sorted[m.starts[slot[i]] + m.before[slot[i] * Memory::words + word] + __popc(below)] =
          int32_t(first + i * align_threads);
    }
  // Four lanes a slot write its padding and its blocks' names.
  const int grid = chunks == Chunks::one ? 1 : int(gridDim.x), block = chunks == Chunks::one ? 0 : int(blockIdx.x);
  for (int p = block * (align_threads / 4) + threadIdx.x / 4; p < slots; p += grid * (align_threads / 4)) {
    const int at = threadIdx.x % 4, begin = m.begins[p], end = m.begins[p + 1];
#pragma unroll 1
    for (int i = begin * a.block_m + m.totals[p] + at; i < end * a.block_m; i += 4) a.sorted[i] = int32_t(a.pairs);
#pragma unroll 1
    for (int i = begin + at; i < end; i += 4) a.expert_ids[i] = p;
  }
  if constexpr (chunks == Chunks::cluster) cluster_wait();  // nobody leaves while others read here
}

template <int runs, Chunks chunks>
__global__ void __launch_bounds__(align_threads) align_pairs(const Alignment a) {
  extern __shared__ int4 memory[];
  const AlignMemory<runs> m(memory, a.slots);
  m.clear(a.slots);
  if (const int e = int(threadIdx.x) * 32; a.expert_to_slot != nullptr && e < a.experts)
    prefetch_to_l2(a.expert_to_slot + e);
  __syncthreads();
  follow_previous();
  const int64_t first = int64_t(blockIdx.x) * runs * align_threads + threadIdx.x;
  int slot[runs];
#pragma unroll
  for (int i = 0; i < runs; ++i) slot[i] = slot_of(a.ids, a.expert_to_slot, first + i * align_threads, a.pairs);
#pragma unroll
  for (int i = 0; i < runs; ++i)
    if (slot[i] >= 0) atomicOr(m.mask(slot[i], i * 32 + int(threadIdx.x) / 32), 1u << threadIdx.x % 32);
  __syncthreads();
  place_pairs<runs, chunks>(a, m, first, slot);
}

int64_t shared_limit() {
  static const int64_t found = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024;
  return found;
}

std::string supports_align(const AlignDesc& d) {
  if (d.slots > most_slots) return fmt::format("more than {} slots", most_slots);
  if (shared_limit() > 0 && AlignMemory<1>::bytes(d.slots) > shared_limit())
    return fmt::format("{} slots: this device has too little shared memory", d.slots);
  return {};
}

Alignment alignment_of(const AlignArgs& a) {
  return {.ids = data_of<int32_t>(a.topk_ids),
          .pairs = a.topk_ids.elements(),
          .expert_to_slot = a.expert_to_slot,
          .experts = a.experts,
          .slots = a.slots,
          .block_m = int(a.block_m),
          .block_shift = std::has_single_bit(uint64_t(a.block_m)) ? std::countr_zero(uint64_t(a.block_m)) : -1,
          .counts_of_chunks = nullptr,
          .sorted = data_of<int32_t>(a.sorted_token_ids),
          .expert_ids = data_of<int32_t>(a.expert_ids),
          .num_post_padded = data_of<int32_t>(a.num_tokens_post_padded)};
}

template <class Kernel>
void allow_memory(Kernel* kernel) {
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_limit()));
  if (status != cudaSuccess) fail("[align] CUDA: {}", cudaGetErrorString(status));
}

template <int runs, Chunks chunks>
void launch_align(const AlignArgs& args, unsigned grid, const int32_t* counts, ExecContext& context) {
  static const bool raised = (allow_memory(align_pairs<runs, chunks>), true);
  (void)raised;
  Alignment a = alignment_of(args);
  a.counts_of_chunks = counts;
  launch_kernel("align", align_pairs<runs, chunks>,
                {grid, align_threads, size_t(AlignMemory<runs>::bytes(a.slots)), chunks == Chunks::cluster ? grid : 1},
                context, a);
}

template <int runs>
bool fits(int64_t slots) {
  return AlignMemory<runs>::bytes(slots) <= shared_limit();
}

template <int runs>
bool align_in_cluster(const AlignArgs& a, ExecContext& context) {
  const unsigned chunks = blocks_for(a.topk_ids.elements(), runs * align_threads);
  if (!made_for_hopper() || chunks > most_cluster || !fits<runs>(a.slots)) return false;
  launch_align<runs, Chunks::cluster>(a, chunks, nullptr, context);
  return true;
}

template <int runs>
void align_counted(const AlignArgs& a, ExecContext& context) {
  const unsigned chunks = blocks_for(a.topk_ids.elements(), runs * align_threads);
  const Workspace::Scope scope(context.workspace);
  int32_t* counts = data_of<int32_t>(context.workspace.alloc(DType::i32, {chunks, a.slots}));
  launch_kernel("align", count_pairs<runs>, {chunks, align_threads, size_t(a.slots) * sizeof(int)}, context,
                data_of<int32_t>(a.topk_ids), a.topk_ids.elements(), a.expert_to_slot, a.slots, counts);
  launch_align<runs, Chunks::counted>(a, chunks, counts, context);
}

void run_align(const AlignArgs& a, ExecContext& context) {
  if (a.topk_ids.elements() <= align_threads) return launch_align<1, Chunks::one>(a, 1, nullptr, context);
  if (align_in_cluster<1>(a, context) || align_in_cluster<2>(a, context) || align_in_cluster<4>(a, context)) return;
  if (fits<4>(a.slots)) return align_counted<4>(a, context);
  if (fits<2>(a.slots)) return align_counted<2>(a, context);
  align_counted<1>(a, context);
}

__global__ void sum_experts(const float* x, int64_t x_stride, const float* weights, int64_t weights_stride, int top_k,
                            int64_t dim, bool accumulate, float* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= dim) return;
  float sum = 0;
  for (int k = 0; k < top_k; ++k) sum += weights[t * weights_stride + k] * x[(t * top_k + k) * x_stride + i];
  float* to = y + t * y_stride + i;
  *to = accumulate ? *to + sum : sum;
}

// The same sums, four neighbouring elements a thread, the loads of up to eight experts under way together.
__global__ void sum_experts_fours(const float* x, int64_t x_stride, const float* weights, int64_t weights_stride,
                                  int top_k, int64_t dim, bool accumulate, float* y, int64_t y_stride) {
  follow_previous();
  const int64_t t = blockIdx.x, i = (int64_t(blockIdx.y) * threads + threadIdx.x) * 4;
  if (i >= dim) return;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int first = 0; first < top_k; first += 8) {
    float4 values[8];
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (first + k < top_k)
        values[k] = __ldcs(reinterpret_cast<const float4*>(x + (t * top_k + first + k) * x_stride + i));
#pragma unroll
    for (int k = 0; k < 8; ++k)
      if (first + k < top_k) {
        const float weight = weights[t * weights_stride + first + k];
        sum.x += weight * values[k].x, sum.y += weight * values[k].y;
        sum.z += weight * values[k].z, sum.w += weight * values[k].w;
      }
  }
  float4* to = reinterpret_cast<float4*>(y + t * y_stride + i);
  if (accumulate) {
    const float4 before = *to;
    sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
  }
  *to = sum;
}

void run_sum(const WeightedSumArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const bool fours = a.y.size(1) % 4 == 0 && a.x.strides[0] % 4 == 0 && a.y.strides[0] % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 && reinterpret_cast<uintptr_t>(a.y.data) % 16 == 0;
  const dim3 grid(unsigned(a.y.size(0)), blocks_for(fours ? a.y.size(1) / 4 : a.y.size(1), threads));
  launch_kernel("weighted_sum", fours ? sum_experts_fours : sum_experts, {grid, threads}, context, data_of<float>(a.x),
                a.x.strides[0], data_of<float>(a.topk_weights), a.topk_weights.strides[0], int(a.topk_weights.size(1)),
                a.y.size(1), a.accumulate, data_of<float>(a.y), a.y.strides[0]);
}

}  // namespace

extern const Implementation<RouteDesc, RouteArgs> route{"cuda.route", Level::cuda, supports_route, run_route};
extern const Implementation<AlignDesc, AlignArgs> align{"cuda.align", Level::cuda, supports_align, run_align};
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum{"cuda.weighted_sum", Level::cuda, any,
                                                                           run_sum};

}  // namespace medley::cuda
