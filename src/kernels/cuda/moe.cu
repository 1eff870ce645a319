// Routing, alignment and the weighted sum. A token is one warp's work in route; align is a counting sort that keeps the
// pairs' order.
#include "kernels/moe.h"

#include <algorithm>
#include <climits>

#include "kernels/cuda/common.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;
constexpr int64_t largest_experts = 1024;
constexpr unsigned all = 0xffffffffu;

struct Candidate {
  float value;
  int index;
};

// Floats as integers in the same order, for the warp's reduction instruction.
__device__ unsigned ordered(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// Index of the largest value, ties to the lower index; the same in every lane.
__device__ int warp_best(Candidate mine) {
  const unsigned key = ordered(mine.value), best = __reduce_max_sync(all, key);
  return int(__reduce_min_sync(all, key == best ? unsigned(mine.index) : unsigned(INT_MAX)));
}

// Best of `count` values; those taken already carry NaN and lose every comparison.
__device__ int best_of(const float* values, int count) {
  Candidate mine{-INFINITY, INT_MAX};
  for (int e = threadIdx.x % 32; e < count; e += 32)
    if (values[e] > mine.value || (values[e] == mine.value && e < mine.index)) mine = {values[e], e};
  return warp_best(mine);
}

// The best groups as a bit mask. A group has 32 / groups lanes (rounded down to a power of two), which look for its two
// largest values.
__device__ unsigned open_groups(const float* choice, const RoutingRule& rule) {
  const int size = rule.experts / rule.groups, lane = threadIdx.x % 32;
  int lanes = 1;
  while (lanes * 2 * rule.groups <= 32) lanes *= 2;
  const int group = lane / lanes;
  float first = -INFINITY, second = -INFINITY;
  if (group < rule.groups)
    for (int e = lane % lanes; e < size; e += lanes) {
      const float value = choice[group * size + e];
      second = fmaxf(second, fminf(first, value));
      first = fmaxf(first, value);
    }
  for (int mask = 1; mask < lanes; mask *= 2) {
    const float other_first = __shfl_xor_sync(all, first, mask), other_second = __shfl_xor_sync(all, second, mask);
    second = fmaxf(fmaxf(second, other_second), fminf(first, other_first));
    first = fmaxf(first, other_first);
  }
  const float value = rule.group_score == GroupScore::top2_sum && size > 1 ? first + second : first;
  unsigned open = 0;
  for (int k = 0; k < rule.top_groups; ++k) {
    const bool offered = lane % lanes == 0 && group < rule.groups && !(open >> group & 1);
    open |= 1u << warp_best({offered ? value : -INFINITY, offered ? group : 31});
  }
  return open;
}

// One warp a token. Shared memory per warp: scores and choice, `experts` each.
__global__ void route_tokens(const float* logits, int64_t logits_stride, const float* bias, RoutingRule rule,
                             int64_t tokens, int32_t* ids, int64_t ids_stride, float* weights, int64_t weights_stride) {
  extern __shared__ float shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t t = int64_t(blockIdx.x) * (blockDim.x / 32) + warp;
  if (t >= tokens) return;
  const int experts = rule.experts;
  float* scores = shared + warp * 2 * experts;
  float* choice = scores + experts;
  logits += t * logits_stride;

  float highest = -INFINITY, total = 0;
#pragma unroll 8
  for (int e = lane; e < experts; e += 32) highest = fmaxf(highest, scores[e] = logits[e]);
  highest = warp_max(highest);
  for (int e = lane; e < experts; e += 32) {
    float score = scores[e];
    if (rule.score == RouterScore::softmax) total += score = expf(score - highest);
    if (rule.score == RouterScore::sigmoid) score = 1.0f / (1.0f + expf(-score));
    scores[e] = score;
  }
  total = warp_sum(total);
  for (int e = lane; e < experts; e += 32) {
    if (rule.score == RouterScore::softmax) scores[e] /= total;
    const float value = scores[e] + (bias != nullptr ? bias[e] : 0.0f);
    choice[e] = isnan(value) ? -INFINITY : value;  // a broken token routes somewhere and harms itself only
  }
  __syncwarp();

  if (rule.group_score != GroupScore::none && rule.top_groups < rule.groups) {
    const int size = experts / rule.groups;
    const unsigned open = open_groups(choice, rule);
    __syncwarp();
    for (int e = lane; e < experts; e += 32)
      if (!(open >> (e / size) & 1)) choice[e] = -INFINITY;
    __syncwarp();
  }

  // Lane k keeps the k-th choice; then each finds its place in ascending order of expert.
  int my_expert = INT_MAX;
  for (int k = 0; k < rule.top_k; ++k) {
    const int best = best_of(choice, experts);
    if (lane == k) my_expert = best;
    __syncwarp();
    if (lane == 0) choice[best] = NAN;
    __syncwarp();
  }
  int place = 0;
  for (int k = 0; k < rule.top_k; ++k) place += __shfl_sync(all, my_expert, k) < my_expert;
  const bool mine = lane < rule.top_k;
  float weight = mine ? scores[my_expert] : -INFINITY;
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
  ids[t * ids_stride + place] = my_expert;
  weights[t * weights_stride + place] = weight / divisor * rule.scaling;
}

std::string supports_route(const RouteDesc& d) {
  if (d.rule.top_k > 32) return "more than 32 experts a token";
  if (d.rule.groups > 32) return "more than 32 groups";
  if (d.rule.experts > largest_experts) return fmt::format("more than {} experts", largest_experts);
  return {};
}

void run_route(const RouteArgs& a, ExecContext& context) {
  const int64_t tokens = a.logits.size(0);
  if (tokens == 0) return;
  constexpr int route_warps = 4;  // of 1024 experts: 32 KiB
  const size_t bytes = route_warps * size_t(2 * a.rule.experts) * sizeof(float);
  route_tokens<<<blocks_for(tokens, route_warps), route_warps * 32, bytes, stream_of(context)>>>(
      data_of<float>(a.logits), a.logits.strides[0], a.correction_bias, a.rule, tokens, data_of<int32_t>(a.topk_ids),
      a.topk_ids.strides[0], data_of<float>(a.topk_weights), a.topk_weights.strides[0]);
  check_launch("route");
}

// align: pairs are cut into chunks of one per thread. The first launch counts a chunk's pairs by slot; in the second a
// pair's place is where its slot begins, after the pairs of earlier chunks and the earlier ones of its own.
__device__ int slot_of(const int32_t* ids, const int32_t* expert_to_slot, int64_t pair, int64_t pairs) {
  if (pair >= pairs) return -1;
  return expert_to_slot != nullptr ? expert_to_slot[ids[pair]] : ids[pair];
}

__global__ void __launch_bounds__(threads)
    count_pairs(const int32_t* ids, int64_t pairs, const int32_t* expert_to_slot, int slots, int32_t* counts) {
  extern __shared__ int mine[];  // [slots]
  for (int s = threadIdx.x; s < slots; s += threads) mine[s] = 0;
  __syncthreads();
  const int slot = slot_of(ids, expert_to_slot, int64_t(blockIdx.x) * threads + threadIdx.x, pairs);
  if (slot >= 0) atomicAdd(&mine[slot], 1);
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += threads) counts[int64_t(blockIdx.x) * slots + s] = mine[s];
}

// totals becomes where each slot's pairs begin, every slot padded to block_m; returns the end of the last.
__device__ int begin_slots(int* totals, int slots, int block_m) {
  __shared__ int warp_totals[warps];
  const int each = (slots + threads - 1) / threads, first = threadIdx.x * each, last = min(first + each, slots);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int own = 0;
  for (int s = first; s < last; ++s) own += (totals[s] + block_m - 1) / block_m * block_m;
  int upto = own;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(all, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_totals[warp] = upto;
  __syncthreads();
  int begin = upto - own, end = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) begin += warp_totals[w];
    end += warp_totals[w];
  }
  for (int s = first; s < last; ++s) {
    const int padded = (totals[s] + block_m - 1) / block_m * block_m;
    totals[s] = begin;
    begin += padded;
  }
  __syncthreads();
  return end;
}

__global__ void __launch_bounds__(threads)
    place_pairs(const int32_t* ids, int64_t pairs, const int32_t* expert_to_slot, int slots, int block_m,
                const int32_t* counts, int32_t* sorted, int32_t* expert_ids, int32_t* num_post_padded) {
  extern __shared__ int mine[];
  int* begins = mine;           // [slots]
  int* earlier = mine + slots;  // [slots]: pairs of earlier chunks
  __shared__ __align__(16) int chunk[threads];
  const int64_t pair = int64_t(blockIdx.x) * threads + threadIdx.x;
  const int slot = slot_of(ids, expert_to_slot, pair, pairs);
  chunk[threadIdx.x] = slot;
  const int chunks = gridDim.x;
  for (int s = threadIdx.x; s < slots; s += threads) {
    int before = 0, total = 0;
#pragma unroll 16
    for (int c = 0; c < chunks; ++c) {
      const int count = counts[int64_t(c) * slots + s];
      total += count;
      if (c < int(blockIdx.x)) before += count;
    }
    begins[s] = total;
    earlier[s] = before;
  }
  __syncthreads();
  const int end = begin_slots(begins, slots, block_m);
  if (blockIdx.x == 0 && threadIdx.x == 0) *num_post_padded = end;
  // This block's share of the padding and of the blocks' names.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int s = blockIdx.x * warps + warp; s < slots; s += chunks * warps) {
    const int first = begins[s], next = s + 1 < slots ? begins[s + 1] : end;
    int count = 0;
    for (int c = lane; c < chunks; c += 32) count += counts[int64_t(c) * slots + s];
    count = __reduce_add_sync(all, count);
    for (int i = first + count + lane; i < next; i += 32) sorted[i] = int32_t(pairs);
    for (int i = first / block_m + lane; i < next / block_m; i += 32) expert_ids[i] = s;
  }
  if (slot < 0) return;
  int rank = 0;
  for (int i = 0; i < int(threadIdx.x) / 4; ++i) {
    const int4 four = reinterpret_cast<const int4*>(chunk)[i];
    rank += (four.x == slot) + (four.y == slot) + (four.z == slot) + (four.w == slot);
  }
  for (int i = threadIdx.x / 4 * 4; i < int(threadIdx.x); ++i) rank += chunk[i] == slot;
  sorted[begins[slot] + earlier[slot] + rank] = int32_t(pair);
}

// Few pairs: one block does all of it, a thread up to `pairs_a_thread` pairs in a row; the same places.
constexpr int few_threads = 1024, pairs_a_thread = 4;
constexpr int64_t few_pairs = few_threads * pairs_a_thread;

__global__ void __launch_bounds__(few_threads)
    align_few(const int32_t* ids, int pairs, const int32_t* expert_to_slot, int slots, int block_m, int32_t* sorted,
              int32_t* expert_ids, int32_t* num_post_padded) {
  extern __shared__ int memory[];
  int* begins = memory;              // [slots + 1]: where each slot's pairs begin
  int* counts = memory + slots + 1;  // [slots]
  // Warp w's pairs of each slot, then how many pairs of it the warps before have.
  auto* of_warp = reinterpret_cast<uint16_t*>(counts + slots);  // [warps][slots]
  __shared__ int warp_totals[few_threads / 32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, all_warps = few_threads / 32;
  for (int i = threadIdx.x; i < all_warps * slots; i += few_threads) of_warp[i] = 0;
  __syncthreads();
  // A warp takes pairs_a_thread runs of 32 neighbouring pairs, so that ranks inside a run come from one vote.
  int slot[pairs_a_thread], rank[pairs_a_thread];
#pragma unroll
  for (int i = 0; i < pairs_a_thread; ++i) {
    const int pair = (warp * pairs_a_thread + i) * 32 + lane;
    slot[i] = slot_of(ids, expert_to_slot, pair, pairs);
    const unsigned same = __match_any_sync(all, slot[i]);
    if (slot[i] >= 0) rank[i] = of_warp[warp * slots + slot[i]] + __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (slot[i] >= 0 && lane == __ffs(same) - 1) of_warp[warp * slots + slot[i]] += uint16_t(__popc(same));
    __syncwarp();
  }
  __syncthreads();
  for (int s = threadIdx.x; s < slots; s += few_threads) {
    int sum = 0;
    for (int w = 0; w < all_warps; ++w) {
      const int count = of_warp[w * slots + s];
      of_warp[w * slots + s] = uint16_t(sum);
      sum += count;
    }
    counts[s] = sum;
  }
  __syncthreads();
  const int each = (slots + few_threads - 1) / few_threads, first = threadIdx.x * each, last = min(first + each, slots);
  int own = 0;
  for (int s = first; s < last; ++s) own += (counts[s] + block_m - 1) / block_m * block_m;
  int upto = own;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(all, upto, step);
    if (lane >= step) upto += other;
  }
  if (lane == 31) warp_totals[warp] = upto;
  __syncthreads();
  int begin = upto - own;
  for (int w = 0; w < warp; ++w) begin += warp_totals[w];
  for (int s = first; s < last; ++s) {
    begins[s] = begin;
    begin += (counts[s] + block_m - 1) / block_m * block_m;
    if (s == slots - 1) begins[slots] = *num_post_padded = begin;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < pairs_a_thread; ++i)
    if (slot[i] >= 0)
      sorted[begins[slot[i]] + of_warp[warp * slots + slot[i]] + rank[i]] = (warp * pairs_a_thread + i) * 32 + lane;
  // Eight lanes a slot write its padding and its blocks' names.
  for (int s = threadIdx.x / 8; s < slots; s += few_threads / 8) {
    const int at = threadIdx.x % 8;
    for (int i = begins[s] + counts[s] + at; i < begins[s + 1]; i += 8) sorted[i] = pairs;
    for (int i = begins[s] / block_m + at; i < begins[s + 1] / block_m; i += 8) expert_ids[i] = s;
  }
}

int64_t few_bytes(int64_t slots) {
  return (2 * slots + 1) * int64_t(sizeof(int)) + few_threads / 32 * slots * int64_t(sizeof(uint16_t));
}

std::string supports_align(const AlignDesc& d) {
  if (d.slots > 4096) return "more than 4096 slots";
  return {};
}

void run_align(const AlignArgs& a, ExecContext& context) {
  const int64_t pairs = a.topk_ids.elements();
  if (pairs <= few_pairs && few_bytes(a.slots) <= 40 << 10) {
    align_few<<<1, few_threads, size_t(few_bytes(a.slots)), stream_of(context)>>>(
        data_of<int32_t>(a.topk_ids), int(pairs), a.expert_to_slot, a.slots, int(a.block_m),
        data_of<int32_t>(a.sorted_token_ids), data_of<int32_t>(a.expert_ids),
        data_of<int32_t>(a.num_tokens_post_padded));
    return check_launch("align");
  }
  const unsigned chunks = std::max(1u, blocks_for(pairs, threads));  // no pairs: still no blocks to name
  const size_t bytes = size_t(a.slots) * sizeof(int);
  const Workspace::Scope scope(context.workspace);
  int32_t* counts = data_of<int32_t>(context.workspace.alloc(DType::i32, {chunks, a.slots}));
  const cudaStream_t stream = stream_of(context);
  const int32_t* ids = data_of<int32_t>(a.topk_ids);
  count_pairs<<<chunks, threads, bytes, stream>>>(ids, pairs, a.expert_to_slot, a.slots, counts);
  place_pairs<<<chunks, threads, 2 * bytes, stream>>>(
      ids, pairs, a.expert_to_slot, a.slots, int(a.block_m), counts, data_of<int32_t>(a.sorted_token_ids),
      data_of<int32_t>(a.expert_ids), data_of<int32_t>(a.num_tokens_post_padded));
  check_launch("align");
}

__global__ void sum_experts(const float* x, int64_t x_stride, const float* weights, int64_t weights_stride, int top_k,
                            int64_t dim, bool accumulate, float* y, int64_t y_stride) {
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
  if (a.y.size(1) % 4 == 0 && a.x.strides[0] % 4 == 0 && a.y.strides[0] % 4 == 0 &&
      reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 && reinterpret_cast<uintptr_t>(a.y.data) % 16 == 0) {
    const dim3 fours(unsigned(a.y.size(0)), blocks_for(a.y.size(1) / 4, threads));
    sum_experts_fours<<<fours, threads, 0, stream_of(context)>>>(
        data_of<float>(a.x), a.x.strides[0], data_of<float>(a.topk_weights), a.topk_weights.strides[0],
        int(a.topk_weights.size(1)), a.y.size(1), a.accumulate, data_of<float>(a.y), a.y.strides[0]);
    return check_launch("weighted_sum");
  }
  const dim3 grid(unsigned(a.y.size(0)), blocks_for(a.y.size(1), threads));
  sum_experts<<<grid, threads, 0, stream_of(context)>>>(
      data_of<float>(a.x), a.x.strides[0], data_of<float>(a.topk_weights), a.topk_weights.strides[0],
      int(a.topk_weights.size(1)), a.y.size(1), a.accumulate, data_of<float>(a.y), a.y.strides[0]);
  check_launch("weighted_sum");
}

}  // namespace

extern const Implementation<RouteDesc, RouteArgs> route{"cuda.route", Level::cuda, supports_route, run_route};
extern const Implementation<AlignDesc, AlignArgs> align{"cuda.align", Level::cuda, supports_align, run_align};
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum{"cuda.weighted_sum", Level::cuda, any,
                                                                           run_sum};

}  // namespace medley::cuda
