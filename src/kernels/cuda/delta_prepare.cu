// First half of the chunked delta rule (delta_chunks.cu): the triangular system of every chunk and head, solved by
// blocks of 16 tokens with operands split into two f16.
#include "kernels/cuda/delta_tiles.h"

namespace medley::cuda::delta {
namespace {

// Within 1e-6 of it for what is not far from 0: what is multiplied is rounded to f16, or to two of them.
__device__ float quick_exp(float x) {
  return exp2f(x * 1.4426950408889634f);
}

// Row and chunk inside it of the step's chunk `index`.
__device__ bool find_chunk(const Chunks& a, int index, int& row, int& within) {
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < a.num_rows; first += 32) {
    const int at = first + lane;
    const int own = at < a.num_rows ? chunks_of(a.state.row_offsets[at + 1] - a.state.row_offsets[at]) : 0;
    int upto = own;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(all, upto, step);
      if (lane >= step) upto += other;
    }
    const unsigned found = __ballot_sync(all, index < upto);
    if (found == 0) {
      index -= __shfl_sync(all, upto, 31);
      continue;
    }
    const int owner = __ffs(found) - 1;
    row = first + owner;
    within = index - __shfl_sync(all, upto - own, owner);
    return true;
  }
  return false;
}

// Floats as two halves each, 22 bits together.
__device__ void split(float x, float y, __half2& high, __half2& low) {
  high = to_halves(x, y);
  const float2 back = __half22float2(high);
  low = __floats2half2_rn(x - back.x, y - back.y);
}

constexpr int block = 16;  // tokens of a block of the triangular system
constexpr int blocks = chunk / block;
constexpr int block_stride = block + 8;
constexpr int value_stride = 128 + 4;  // floats

struct Prepare {
  __half k[chunk * key_stride], q[chunk * key_stride];
  // b[i] e^(d[i] - d[j]) (k[i] . k[j]), j < i: between blocks as split halves, inside a block as floats.
  __half between[2][chunk * pair_stride];
  float inside[blocks][block][block];
  __half inverse[2][blocks][block * block_stride];  // of each block with its ones, split
  float v[chunk * value_stride];
  float d[chunk], b[chunk], d_factor[chunk];  // d_factor: b e^d
};

// Column `column` of the inverse of a diagonal block: a thread each.
__device__ void invert(Prepare& shared, int which, int column) {
  float x[block];
#pragma unroll
  for (int i = 0; i < block; ++i) {
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&shared.inside[which][i][j]);
      const float factors[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (j + e < i) x[i] = fmaf(-factors[e], x[j + e], x[i]);
    }
    __half2 high, low;
    split(x[i], 0, high, low);
    shared.inverse[0][which][i * block_stride + column] = high.x;
    shared.inverse[1][which][i * block_stride + column] = low.x;
  }
}

// d += a b with a and b split: three products of the four; the low parts' own is below float32's rounding.
__device__ void multiply_split(float (&d)[4], const uint32_t (&a)[2][4], const uint32_t (&b)[2][4], int group) {
  multiply(d, a[1], b[0][group * 2], b[0][group * 2 + 1]);
  multiply(d, a[0], b[1][group * 2], b[1][group * 2 + 1]);
  multiply(d, a[0], b[0][group * 2], b[0][group * 2 + 1]);
}
// Accumulators of 16 rows x 16 columns as the next product's rows, split.
__device__ void as_rows(const float (&d)[2][4], uint32_t (&a)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    __half2 high, low;
    split(d[i / 2][i % 2 * 2], d[i / 2][i % 2 * 2 + 1], high, low);
    memcpy(&a[0][i], &high, 4);
    memcpy(&a[1][i], &low, 4);
  }
}

// The triangular system, transposed: rows are 16 of the 256 columns of [b e^d k | b v], which x holds by blocks of
// tokens as accumulators lie. Block after block: x = (x - sum of earlier blocks' x times `between`) times `inverse`.
__device__ void solve(const Prepare& shared, float (&x)[blocks][2][4]) {
  uint32_t solved[blocks][2][4], right[2][4];
#pragma unroll
  for (int i = 0; i < blocks; ++i) {
    float sum[2][4] = {};
#pragma unroll
    for (int j = 0; j < i; ++j) {
      for (int part = 0; part < 2; ++part)
        load_columns_transposed(right[part], &shared.between[part][i * block * pair_stride + j * block], pair_stride);
      for (int group = 0; group < 2; ++group) multiply_split(sum[group], solved[j], right, group);
    }
    float rest[2][4];
#pragma unroll
    for (int group = 0; group < 2; ++group)
      for (int e = 0; e < 4; ++e) rest[group][e] = x[i][group][e] - sum[group][e], x[i][group][e] = 0;
    uint32_t left[2][4];
    as_rows(rest, left);
    for (int part = 0; part < 2; ++part) load_columns_transposed(right[part], shared.inverse[part][i], block_stride);
    for (int group = 0; group < 2; ++group) multiply_split(x[i][group], left, right, group);
    as_rows(x[i], solved[i]);
  }
}

// Sums of 2 `half` values over the warp, exchanged so that each step halves what a lane holds. Of 16 values, sum i ends
// in the lanes 2 i and 2 i + 1.
template <int half, int count>
__device__ float sum_all(float (&v)[count]) {
  constexpr int bit = 2 * half;
  const bool upper = threadIdx.x & bit;
#pragma unroll
  for (int i = 0; i < half; ++i) {
    const float give = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
    v[i] = keep + __shfl_xor_sync(all, give, bit);
  }
  if constexpr (half > 1) return sum_all<half / 2>(v);
  return v[0] + __shfl_xor_sync(all, v[0], 1);
}

// A chunk's place among the step's chunks and tokens.
struct Place {
  int64_t index, first;
  int count;  // of tokens
};

// Values of a head: a warp's rows, all under way together.
__device__ void load_values(const Chunks& a, Prepare& shared, const Place& from, int head) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane * 4 >= a.v_dim) return;
#pragma unroll
  for (int t = warp; t < chunk; t += warps) {
    const bool used = t < from.count;
    copy_sixteen(&shared.v[t * value_stride + lane * 4],
                 a.v + (used ? (from.first + t) * a.v_token + head * a.v_head + lane * 4 : 0), used);
  }
}

// `keeps`: for `walk` too, which one block does for each key head.
__device__ void load_keys(const Chunks& a, Prepare& shared, const Place& from, int key_head, bool keeps) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr int each = chunk / warps;
  KeyPart& key_part = a.key_parts[from.index * a.key_heads + key_head];
  // Keys and queries, normalised; zeros past the last token.
  float4 keys[each], queries[each];
  float squares[2 * each];
  static_assert(2 * each == 16);
#pragma unroll
  for (int r = 0; r < each; ++r) {
    const int i = warp + r * warps;
    keys[r] = queries[r] = make_float4(0, 0, 0, 0);
    if (i < from.count) {
      keys[r] = *reinterpret_cast<const float4*>(a.k + (from.first + i) * a.k_token + key_head * a.k_head + lane * 4);
      queries[r] =
          *reinterpret_cast<const float4*>(a.q + (from.first + i) * a.q_token + key_head * a.q_head + lane * 4);
    }
  }
#pragma unroll
  for (int r = 0; r < each; ++r) {
    const float4 k = keys[r], q = queries[r];
    squares[r] = k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w;
    squares[r + each] = q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w;
  }
  const float own_factor = (lane < 16 ? 1.0f : a.scale) / sqrtf(sum_all<each>(squares) + a.l2_eps);
#pragma unroll
  for (int r = 0; r < each; ++r) {
    const int i = warp + r * warps;
    const float4 k = keys[r], q = queries[r];
    const float k_factor = __shfl_sync(all, own_factor, 2 * r), q_factor = __shfl_sync(all, own_factor, 16 + 2 * r);
    const __half2 halves[4] = {
        __floats2half2_rn(k.x * k_factor, k.y * k_factor), __floats2half2_rn(k.z * k_factor, k.w * k_factor),
        __floats2half2_rn(q.x * q_factor, q.y * q_factor), __floats2half2_rn(q.z * q_factor, q.w * q_factor)};
    uint2 bits[2];
    memcpy(bits, halves, sizeof(bits));
    *reinterpret_cast<uint2*>(&shared.k[i * key_stride + lane * 4]) = bits[0];
    *reinterpret_cast<uint2*>(&shared.q[i * key_stride + lane * 4]) = bits[1];
    if (keeps) {
      *reinterpret_cast<uint2*>(&key_part.k[i * key_stride + lane * 4]) = bits[0];
      *reinterpret_cast<uint2*>(&key_part.q[i * key_stride + lane * 4]) = bits[1];
    }
  }
}

// What decays and steps of a head follow from, of the tokens 2 lane and 2 lane + 1.
struct Rates {
  float dt[2], beta[2];
};
__device__ Rates load_rates(const Chunks& a, const Place& from, int head) {
  Rates rates{};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (const int at = threadIdx.x % 32 * 2 + i; at < from.count) {
      const int64_t t = from.first + at;
      rates.dt[i] = a.dt[t * a.dt_token + head * a.dt_head], rates.beta[i] = a.beta[t * a.beta_token + head];
    }
  return rates;
}

__device__ void prepare_head(const Chunks& a, Prepare& shared, const Place& from, int head, const Rates& rates) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t item = from.index * a.heads + head;
  HeadPart& head_part = a.head_parts[item];
  if (warp == 0) {  // while the others multiply
    float own[2] = {}, beta[2] = {};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (lane * 2 + i < from.count) {
        own[i] = a.a[head] * softplus(rates.dt[i] + a.dt_bias[head]);
        beta[i] = sigmoid(rates.beta[i]);
      }
    float upto = own[0] + own[1];
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(all, upto, step);
      if (lane >= step) upto += other;
    }
    const float end = __shfl_sync(all, upto, 31);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = lane * 2 + i;
      const float d = i == 0 ? upto - own[1] : upto;
      shared.d[t] = d, shared.b[t] = beta[i], shared.d_factor[t] = beta[i] * expf(d);
      head_part.upto[t] = expf(d), head_part.from[t] = expf(end - d);
    }
  }

  // k . k and q . k: a warp 16 tokens i x 32 tokens j.
  {
    const int i0 = warp / 2 * 16, j0 = warp % 2 * 32, g = lane / 4, quad = lane % 4;
    float kk[4][4] = {}, qk[4][4] = {};
#pragma unroll
    for (int k = 0; k < key_dim; k += 16) {
      uint32_t k_rows[4], q_rows[4], columns[2][4];
      load_rows(k_rows, &shared.k[i0 * key_stride + k], key_stride);
      load_rows(q_rows, &shared.q[i0 * key_stride + k], key_stride);
      for (int n = 0; n < 2; ++n)
        load_columns_transposed(columns[n], &shared.k[(j0 + n * 16) * key_stride + k], key_stride);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        multiply(kk[n], k_rows, columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
        multiply(qk[n], q_rows, columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1]);
      }
    }
    __syncthreads();  // the decays are there
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = i0 + g + half * 8, j = j0 + n * 8 + quad * 2;
        float strict[2], upto[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float decay = j + e <= i ? quick_exp(shared.d[i] - shared.d[j + e]) : 0.0f;
          strict[e] = j + e < i ? shared.b[i] * decay * kk[n][half * 2 + e] : 0.0f;
          upto[e] = decay * qk[n][half * 2 + e];
        }
        if (i / block == j / block) {
          *reinterpret_cast<float2*>(&shared.inside[i / block][i % block][j % block]) =
              make_float2(strict[0], strict[1]);
        } else {
          __half2 high, low;
          split(strict[0], strict[1], high, low);
          *reinterpret_cast<__half2*>(&shared.between[0][i * pair_stride + j]) = high;
          *reinterpret_cast<__half2*>(&shared.between[1][i * pair_stride + j]) = low;
        }
        *reinterpret_cast<__half2*>(&head_part.p[i * pair_stride + j]) = __floats2half2_rn(upto[0], upto[1]);
      }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  if (threadIdx.x < chunk) invert(shared, threadIdx.x / block, threadIdx.x % block);
  // Warps 0 to 3 solve for W, 4 to 7 for U, 32 columns each.
  const int g = lane / 4, quad = lane % 4;
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const int first_column = warp % 4 * 32 + part * 16, column = first_column + g;
    float x[blocks][2][4];
    if (warp < 4) {
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        uint32_t
            frag[4];  // as accumulators lie: columns g and g + 8 of tokens 2 quad and the next, then of eight later
        load_rows_transposed(frag, &shared.k[i * block * key_stride + first_column], key_stride);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          __half2 two;
          memcpy(&two, &frag[j], 4);
          const float2 k = __half22float2(two);
          const float2 factor = *reinterpret_cast<const float2*>(&shared.d_factor[i * block + j / 2 * 8 + quad * 2]);
          x[i][j / 2][j % 2 * 2] = factor.x * k.x, x[i][j / 2][j % 2 * 2 + 1] = factor.y * k.y;
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t = i * 8 + quad * 2 + e % 2, c = column + e / 2 * 8;
          x[i / 2][i % 2][e] = shared.b[t] * (c < a.v_dim ? shared.v[t * value_stride + c] : 0.0f);
        }
    }
    if (part == 0) __syncthreads();  // the inverses are there
    solve(shared, x);
    if (warp < 4) {
      __half* w = head_part.w + column * pair_stride + quad * 2;
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<__half2*>(w + half * 8 * pair_stride + i * 8) =
              to_halves(x[i / 2][i % 2][half * 2], x[i / 2][i % 2][half * 2 + 1]);
    } else if (first_column < a.v_dim) {  // which is whole slices
      float* u = a.value_parts[item * (a.v_dim / slice) + first_column / slice].u +
                 (first_column % slice + g) * token_stride + quad * 2;
#pragma unroll
      for (int i = 0; i < chunk / 8; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(u + half * 8 * token_stride + i * 8) =
              make_float2(x[i / 2][i % 2][half * 2], x[i / 2][i % 2][half * 2 + 1]);
    }
  }
}

// Block (head, chunk of the step): heads first, as they lie in memory.
__global__ void __launch_bounds__(threads, 2) prepare(Chunks a) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Prepare*>(memory);
  follow_previous();
  int row, within;
  if (!find_chunk(a, int(blockIdx.y), row, within)) return;
  const int64_t first = a.state.row_offsets[row] + int64_t(within) * chunk;
  const Place from{blockIdx.y, first, min(chunk, a.state.row_offsets[row + 1] - int(first))};
  const int head = blockIdx.x, ratio = a.heads / a.key_heads;
  load_values(a, shared, from, head);
  const Rates rates = load_rates(a, from, head);
  load_keys(a, shared, from, head / ratio, head % ratio == 0);
  __syncthreads();
  prepare_head(a, shared, from, head, rates);
}

}  // namespace

void prepare_chunks(const Chunks& a, int64_t chunks, ExecContext& context) {
  static const bool raised =
      cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Prepare)) == cudaSuccess;
  MEDLEY_CHECK(raised);
  launch_kernel("gated_delta_scan", prepare, {dim3(unsigned(a.heads), unsigned(chunks)), threads, sizeof(Prepare)},
                context, a);
}

}  // namespace medley::cuda::delta
