// Choosing tokens: a cluster of up to eight blocks for a row, each with its run of the vocabulary in shared memory, so
// that the logits are read once. (Without clusters, as on Ampere, one block; a row too long for its shared memory lies
// in the workspace.)
//
// Both thresholds, top-k's on logits and top-p's on weights, are found three bits at a time: a pass measures what is at
// least each of eight values, evenly spaced in what the bits still leave open, and keeps the range where enough is
// reached. Histograms in shared memory would take fewer passes, but weights crowd into few bins, where atomics wait for
// each other; here the time hardly depends on the data. All sums are of whole numbers, so neither the cut into blocks
// nor the order of adding changes the result (kernels/sample.h).
#include "kernels/sample.h"

#include <algorithm>

#include "kernels/cuda/common.h"

namespace medley::cuda {
namespace {

// 640 and 768 threads choose among whole vocabularies a tenth faster, but have no registers for the passes of the
// filters, which are bound by arithmetic (some 25 instructions a token).
constexpr int threads = 512, warps = threads / 32;
constexpr int most_blocks = 8;  // what every GPU with clusters takes
constexpr int tokens_worth_a_block = 4096;
constexpr int ranges = 8, range_bits = 3;
constexpr int32_t seen = int32_t(0x80000000);

// What warps and blocks of a row tell each other. `from` is written by the other blocks: two in turns, so that the next
// round can be written while the last one is still read.
struct Exchange {
  uint64_t warp[warps][ranges];
  uint64_t from[2][most_blocks][ranges];
};

// One block's part of a row: values[i] belongs to token begin + i. A warp's elements are a run of their own, [first,
// last) in steps of 32, so that "before" in the order of tokens is "in an earlier block, warp or round".
struct Part {
  Exchange& exchange;
  float* values;
  int blocks, rank;
  int begin, count;
  int warp, lane, first, last;
  int turn = 0;

  __device__ void sync() const {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) {
      asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
      return;
    }
#endif
    __syncthreads();
  }
  // Where this block's values go in that block's memory.
  __device__ uint64_t* to(int block) const {
    uint64_t* place = exchange.from[turn][rank];
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) asm volatile("mapa.u64 %0, %1, %2;" : "=l"(place) : "l"(exchange.from[turn][rank]), "r"(block));
#endif
    return place;
  }
  template <class F>
  __device__ void each(F&& f) const {
#pragma unroll 4
    for (int i = first + lane; i < last; i += 32) f(i);
  }
};

struct Sum {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
struct Most {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

template <class Combine, int n>
__device__ void combine_warp(uint64_t (&value)[n]) {
  const Combine both;
#pragma unroll
  for (int k = 0; k < n; ++k)
    for (int mask = 16; mask > 0; mask /= 2) value[k] = both(value[k], __shfl_xor_sync(0xffffffffu, value[k], mask));
}

// Over lanes that stand for the same one of `ranges` values.
template <class Combine>
__device__ uint64_t combine_lanes(uint64_t value) {
  const Combine both;
  for (int mask = 16; mask >= ranges; mask /= 2) value = both(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

// From what each warp has to what all blocks of the row have together. 0 is no value.
template <class Combine, int n>
__device__ void combine_row(Part& part, uint64_t (&value)[n]) {
  const Combine both;
  Exchange& x = part.exchange;
  if (part.lane == 0) {
#pragma unroll
    for (int k = 0; k < n; ++k) x.warp[part.warp][k] = value[k];
  }
  __syncthreads();
  const int k = part.lane % ranges;
  if (part.warp == 0) {
    uint64_t block = 0;
#pragma unroll
    for (int w = 0; w < warps; w += 32 / ranges)
      if (const int from = w + part.lane / ranges; k < n && from < warps) block = both(block, x.warp[from][k]);
    block = combine_lanes<Combine>(block);
    for (int b = part.lane / ranges; b < part.blocks; b += 32 / ranges) part.to(b)[k] = block;
  }
  part.sync();
  uint64_t row = 0;
  for (int b = part.lane / ranges; b < part.blocks; b += 32 / ranges) row = both(row, x.from[part.turn][b][k]);
  row = combine_lanes<Combine>(row);
#pragma unroll
  for (int v = 0; v < n; ++v) value[v] = __shfl_sync(0xffffffffu, row, v);
  part.turn ^= 1;
}

// Of a sum over the row in the order of tokens: how much comes before this warp's run, and all of it.
struct Order {
  uint64_t before, total;
};
__device__ Order in_order(Part& part, uint64_t of_warp) {
  Exchange& x = part.exchange;
  uint64_t mine[1] = {of_warp};
  combine_warp<Sum>(mine);
  if (part.lane == 0) x.warp[part.warp][0] = mine[0];
  __syncthreads();
  static_assert(warps <= 32 && most_blocks <= 32);
  const uint64_t other = part.lane < warps ? x.warp[part.lane][0] : 0;
  uint64_t warps_before_and_all[2] = {part.lane < part.warp ? other : 0, other};
  combine_warp<Sum>(warps_before_and_all);
  if (part.warp == 0 && part.lane < part.blocks) part.to(part.lane)[0] = warps_before_and_all[1];
  part.sync();
  const uint64_t block = part.lane < part.blocks ? x.from[part.turn][part.lane][0] : 0;
  uint64_t blocks_before_and_all[2] = {part.lane < part.rank ? block : 0, block};
  combine_warp<Sum>(blocks_before_and_all);
  part.turn ^= 1;
  return {blocks_before_and_all[0] + warps_before_and_all[0], blocks_before_and_all[1]};
}

// Bits whose order as whole numbers is that of the floats; -0 counts as 0.
__device__ uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(__fadd_rn(value, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A logit as a whole number of 32 bits, and back. Numbers beyond the infinities are taken for them.
struct LogitKey {
  static constexpr int bits = 32;
  __device__ static float value_of(uint32_t key) {
    constexpr uint32_t infinity = 0xff800000u;
    if (key > infinity) return INFINITY;
    return key < ~infinity ? -INFINITY : __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
  }
};
// A weight is at most 1, so its two highest bits are 0.
struct WeightKey {
  static constexpr int bits = 30;
  __device__ static float value_of(uint32_t key) { return __uint_as_float(key); }
};

// How much is at least each of `from`, below `end`: tokens (where `end` may be ignored), or units of their weights.
struct Tokens {
  static constexpr bool to_the_end = false;
  uint32_t of[ranges] = {};
  __device__ void add(float value, const float (&from)[ranges], float) {
#pragma unroll
    for (int r = 0; r < ranges; ++r) of[r] += value >= from[r];
  }
  __device__ void combine_in_warp(uint64_t (&all)[ranges]) const {
#pragma unroll
    for (int r = 0; r < ranges; ++r) all[r] = __reduce_add_sync(0xffffffffu, of[r]);
  }
};
struct Units {
  static constexpr bool to_the_end = true;
  uint64_t of[ranges] = {};
  __device__ void add(float value, const float (&from)[ranges], float end) {
    if (!(value >= from[0] && value < end)) return;
    const uint64_t units = sampling::units_of(value);
#pragma unroll
    for (int r = 0; r < ranges; ++r) of[r] += value >= from[r] ? units : 0;
  }
  __device__ void combine_in_warp(uint64_t (&all)[ranges]) const {
#pragma unroll
    for (int r = 0; r < ranges; ++r) all[r] = of[r];
    combine_warp<Sum>(all);
  }
};

// The least value with less than enough(all) above it, and how much that is.
struct Crossing {
  float value;
  uint64_t above, enough;
};
template <class Measure, class Key, class Enough>
__device__ Crossing crossing(Part& part, const Enough& enough) {
  uint32_t found = 0;  // of the key: bits below `known` are not decided yet
  uint64_t above = 0, wanted = 0;
  float end = INFINITY;
  for (int known = Key::bits; known > 0;) {
    const int shift = known > range_bits ? known - range_bits : 0;
    float from[ranges];
#pragma unroll
    for (int r = 0; r < ranges; ++r)
      from[r] = r >> (known - shift) == 0 ? Key::value_of(found | uint32_t(r) << shift) : INFINITY;
    Measure mine;
    part.each([&](int i) { mine.add(part.values[i], from, end); });
    uint64_t at_least[ranges];
    mine.combine_in_warp(at_least);
    combine_row<Sum>(part, at_least);
    if (known == Key::bits) wanted = enough(at_least[0]);
    const uint64_t beyond = Measure::to_the_end ? above : 0;
    uint32_t range = 0;
#pragma unroll
    for (int r = ranges - 1; r > 0; --r) {
      if (range != 0) continue;
      if (beyond + at_least[r] >= wanted) {
        range = uint32_t(r);
      } else {
        above = beyond + at_least[r];
        end = from[r];
      }
    }
    found |= range << shift;
    known = shift;
  }
  return {Key::value_of(found), above, wanted};
}

__device__ void load(Part& part, const SampleChoice& row, const float* logits, const int32_t* bias_tokens,
                     const float* bias_values, const int32_t* counts) {
#pragma unroll 8
  for (int i = part.first + part.lane; i < part.last; i += 32) part.values[i] = logits[part.begin + i];
  if (row.num_biases > 0) {
    __syncthreads();
    const int32_t* tokens = bias_tokens + row.first_bias;
    const float* values = bias_values + row.first_bias;
    for (int b = int(threadIdx.x); b < row.num_biases; b += threads) {
      const int i = tokens[b] - part.begin;
      if (i < 0 || i >= part.count || (b > 0 && tokens[b - 1] == tokens[b])) continue;
      for (int next = b; next < row.num_biases && tokens[next] == tokens[b]; ++next)
        part.values[i] = sampling::sum(part.values[i], values[next]);
    }
    __syncthreads();
  }
  if (row.counted == 0) return;
  part.each([&](int i) {
    const int32_t count = counts[part.begin + i];
    if (count == 0) return;
    part.values[i] = sampling::penalised(part.values[i], count & ~seen, row.repetition, row.presence, row.frequency);
  });
}

// The best logit and the lowest token that has it; the first one that is not finite.
struct BestToken {
  float logit;
  int32_t token, not_finite;
};
__device__ BestToken best_of(Part& part) {
  uint64_t most[2] = {0, 0};
#pragma unroll 8
  for (int i = part.first + part.lane; i < part.last; i += 32) {
    const float value = part.values[i];
    const uint32_t low = ~uint32_t(part.begin + i);  // the lower token is the higher number
    if (!(value < INFINITY)) most[1] = Most()(most[1], uint64_t(1) << 32 | low);
    most[0] = Most()(most[0], uint64_t(ordered(value)) << 32 | low);
  }
  combine_warp<Most>(most);
  combine_row<Most>(part, most);
  const uint32_t key = uint32_t(most[0] >> 32);
  const float logit = __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
  return {logit, logit == -INFINITY ? -1 : int32_t(~uint32_t(most[0])),
          most[1] == 0 ? -1 : int32_t(~uint32_t(most[1]))};
}

// Of the tokens that weigh as much as the last one to stay, the first so many stay.
__device__ void keep_top_p(Part& part, float top_p) {
  const Crossing last =
      crossing<Units, WeightKey>(part, [&](uint64_t total) { return sampling::enough_units(top_p, total); });
  const uint64_t units = sampling::units_of(last.value);
  uint64_t equals = 0;
  part.each([&](int i) { equals += part.values[i] == last.value; });
  uint64_t before = in_order(part, equals).before;
  for (int base = part.first; base < part.last; base += 32) {
    const int i = base + part.lane;
    const float weight = i < part.last ? part.values[i] : 0;
    const unsigned ties = __ballot_sync(0xffffffffu, i < part.last && weight == last.value);
    const uint64_t rank = before + __popc(ties & ((1u << part.lane) - 1));
    const bool stays = weight > last.value || (weight == last.value && last.above + rank * units < last.enough);
    if (i < part.last && !stays) part.values[i] = 0;
    before += __popc(ties);
  }
}

// The token at the share row.uniform of the weights, summed in the order of tokens; -1 in all threads but one.
__device__ int32_t draw(Part& part, const SampleChoice& row) {
  uint64_t mine = 0;
  part.each([&](int i) {
    if (part.values[i] < row.min_p) part.values[i] = 0;
    mine += sampling::units_of(part.values[i]);
  });
  const Order order = in_order(part, mine);
  const uint64_t target = sampling::drawn_unit(row.uniform, order.total);
  uint64_t before = order.before;
  for (int base = part.first; base < part.last && before <= target; base += 32) {
    const int i = base + part.lane;
    uint64_t until = i < part.last ? sampling::units_of(part.values[i]) : 0;
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(0xffffffffu, until, step);
      if (part.lane >= step) until += other;
    }
    const unsigned past = __ballot_sync(0xffffffffu, before + until > target);
    if (past != 0) return part.lane == __ffs(int(past)) - 1 ? part.begin + i : -1;
    before += __shfl_sync(0xffffffffu, until, 31);
  }
  return -1;
}

__device__ int32_t draw_filtered(Part& part, const SampleChoice& row, float best, int vocab) {
  float least = -INFINITY;
  if (row.top_k > 0 && row.top_k < vocab)
    least = crossing<Tokens, LogitKey>(part, [&](uint64_t) { return uint64_t(row.top_k); }).value;
  part.each([&](int i) {
    const float logit = part.values[i];
    part.values[i] = logit >= least ? sampling::weight_of(logit, best, row.temperature) : 0.0f;
  });
  if (row.top_p < 1) keep_top_p(part, row.top_p);
  return draw(part, row);
}

struct Pointers {
  const float* logits;
  int64_t logits_stride;
  const SampleChoice* rows;
  const int32_t* bias_tokens;
  const float* bias_values;
  int32_t* counts;
  int32_t* last;
  SampledToken* chosen;
  float* scratch;  // [rows, blocks * slice]; null: shared memory
};

__global__ void __launch_bounds__(threads, 2) choose(Pointers p, int vocab, int slice, int blocks) {
  extern __shared__ float shared_values[];
  __shared__ Exchange exchange;
  const int r = int(blockIdx.x) / blocks, rank = int(blockIdx.x) % blocks;
  const SampleChoice row = p.rows[r];
  Part part{.exchange = exchange,
            .values = p.scratch == nullptr ? shared_values : p.scratch + int64_t(blockIdx.x) * slice,
            .blocks = blocks,
            .rank = rank,
            .begin = rank * slice,
            .count = max(0, min(slice, vocab - rank * slice)),
            .warp = int(threadIdx.x) / 32,
            .lane = int(threadIdx.x) % 32};
  const int run = (slice / 32 + warps - 1) / warps * 32;
  part.first = min(part.warp * run, part.count);
  part.last = min(part.first + run, part.count);
  int32_t* counts = row.counted != 0 ? p.counts + int64_t(row.slot) * vocab : nullptr;

  const float* logits = p.logits + row.logits_row * p.logits_stride;
  if (row.plain()) {
    part.values = const_cast<float*>(logits) + part.begin;  // nobody will write there
  } else {
    load(part, row, logits, p.bias_tokens, p.bias_values, counts);
  }
  part.sync();  // the other blocks have begun: their memory may be written
  const BestToken best = best_of(part);
  int32_t token = rank == 0 && threadIdx.x == 0 ? best.token : -1;
  const bool wrong = best.not_finite >= 0 || best.token < 0;
  if (!wrong && row.temperature > 0) token = draw_filtered(part, row, best.logit, vocab);
  if (wrong) {
    const int owner = best.not_finite >= 0 ? best.not_finite / slice : 0;
    if (rank == owner && threadIdx.x == 0) {
      const float logit = best.not_finite >= 0 ? part.values[best.not_finite - part.begin] : best.logit;
      p.chosen[r] = {-1, best.not_finite, logit};
      p.last[row.slot] = 0;
    }
  } else if (token >= 0) {
    p.chosen[r] = {token, -1, 0.0f};
    p.last[row.slot] = token;
    if (counts != nullptr) counts[token] = (counts[token] | seen) + 1;
  }
}

__global__ void count(const CountTokens* starts, const int32_t* tokens, int32_t* counts, int vocab) {
  const CountTokens start = starts[blockIdx.x];
  counts += int64_t(start.slot) * vocab;
  tokens += start.first;
  for (int i = int(threadIdx.x); i < vocab; i += threads) counts[i] = 0;
  __syncthreads();
  for (int i = int(threadIdx.x); i < start.prompt + start.output; i += threads) {
    atomicOr(counts + tokens[i], seen);
    if (i >= start.prompt) atomicAdd(counts + tokens[i], 1);
  }
}

__global__ void take(int32_t* ids, const int32_t* from, const int32_t* last, int tokens) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < tokens && from[i] >= 0) ids[i] = last[from[i]];
}

struct Limits {
  bool clusters = false;
  int shared_floats = 0;
};
Limits limits() {
  Limits limits;
  cudaFuncAttributes code;
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (cudaFuncGetAttributes(&code, choose) == cudaSuccess) {
    const int bytes = most - int(code.sharedSizeBytes);
    cudaFuncSetAttribute(choose, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    limits = {code.ptxVersion >= 90, bytes / int(sizeof(float))};  // an older version's code knows no clusters
  }
  check_launch("sample");
  return limits;
}

}  // namespace

void sample(const SampleArgs& a, ExecContext& exec) {
  static const Limits limit = limits();
  const int rows = int(a.rows.size(0)), vocab = int(a.logits.size(1));
  MEDLEY_CHECK(vocab > 0 && vocab <= sampling::most_tokens && a.rows.size(1) * 8 == int64_t(sizeof(SampleChoice)));
  if (rows == 0) return;
  int blocks = 1;
  while (limit.clusters && blocks < most_blocks && blocks * tokens_worth_a_block < vocab) blocks *= 2;
  const int slice = ((vocab + blocks - 1) / blocks + 31) / 32 * 32;
  const bool fits = a.all_plain || slice <= limit.shared_floats;
  const Workspace::Scope scope(exec.workspace);
  const Pointers pointers{
      .logits = data_of<float>(a.logits),
      .logits_stride = a.logits.strides[0],
      .rows = static_cast<const SampleChoice*>(a.rows.data),
      .bias_tokens = data_of<int32_t>(a.bias_tokens),
      .bias_values = data_of<float>(a.bias_values),
      .counts = data_of<int32_t>(a.counts),
      .last = data_of<int32_t>(a.last),
      .chosen = static_cast<SampledToken*>(a.chosen.data),
      .scratch =
          fits ? nullptr : data_of<float>(exec.workspace.alloc(DType::f32, {int64_t(rows) * blocks, int64_t(slice)}))};
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(blocks), 1, 1};
  const cudaLaunchConfig_t config{.gridDim = dim3(unsigned(rows * blocks)),
                                  .blockDim = dim3(threads),
                                  .dynamicSmemBytes = fits && !a.all_plain ? size_t(slice) * sizeof(float) : 0,
                                  .stream = stream_of(exec),
                                  .attrs = &cluster,
                                  .numAttrs = blocks > 1 ? 1u : 0u};
  cudaLaunchKernelEx(&config, choose, pointers, vocab, slice, blocks);
  check_launch("sample");
}

void count_tokens(const CountTokensArgs& a, ExecContext& exec) {
  if (a.starts.size(0) == 0) return;
  count<<<unsigned(a.starts.size(0)), threads, 0, stream_of(exec)>>>(static_cast<const CountTokens*>(a.starts.data),
                                                                     data_of<int32_t>(a.tokens),
                                                                     data_of<int32_t>(a.counts), int(a.counts.size(1)));
  check_launch("count_tokens");
}

void take_tokens(const TakeTokensArgs& a, ExecContext& exec) {
  const int64_t tokens = a.ids.elements();
  if (tokens == 0) return;
  take<<<blocks_for(tokens, threads), threads, 0, stream_of(exec)>>>(data_of<int32_t>(a.ids), data_of<int32_t>(a.from),
                                                                     data_of<int32_t>(a.last), int(tokens));
  check_launch("take_tokens");
}

}  // namespace medley::cuda
