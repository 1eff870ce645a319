// The gated delta rule by chunks of 64 tokens (Gated DeltaNet, Yang et al. 2024, section 3.3), for heads of 128 x up to
// 128. With b = sigmoid(beta), d[i] the decay's logarithm summed up to token i of the chunk and S the state before it,
// the change that token i makes is k[i] n[i]^T where
//   n[i] = b[i] (v[i] - e^d[i] S^T k[i] - sum over j < i of e^(d[i] - d[j]) (k[i] . k[j]) n[j]).
// That is linear in S: n = U - W S, where U and W solve the same triangular system for b v and b e^d k.
//
// `prepare` solves it for every chunk at once, by blocks of 16 tokens with operands split into two f16. `walk` then
// goes through the chunks of a head in order, 32 columns of the state a block:
//   n = U - W S,   y = e^d Q S + P n,   S = e^d[63] S + K^T (e^(d[63] - d) n)
// with P[i, j] = e^(d[i] - d[j]) (q[i] . k[j]). Products take operands rounded to f16 (11 bits, as TF32; nothing here
// but v and S, whose size v bounds, can be large) and add in float32. Chunks begin at a row's first new token: bits
// depend on the row's own chunk alone.
#include "kernels/cuda/delta_chunks.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/state_slots.h"

namespace medley::cuda {
namespace {

constexpr int chunk = chunk_tokens;
constexpr int key_dim = 128;
constexpr int slice = 32;  // columns of a `walk` block
constexpr int threads = 256, warps = threads / 32;
constexpr unsigned all = 0xffffffffu;

// Rows of shared memory are padded by 16 bytes, so that the eight rows of a matrix fragment lie in different banks.
constexpr int key_stride = key_dim + 8, pair_stride = chunk + 8, slice_stride = slice + 8;  // halves

// What `prepare` leaves of a chunk, as `walk` wants it in its shared memory: of a key head, a head, and 32 columns.
struct KeyPart {
  __half k[chunk * key_stride], q[chunk * key_stride];  // normalised
};
struct HeadPart {
  __half w[key_dim * pair_stride];  // W, transposed
  __half p[chunk * pair_stride];    // P
  float upto[chunk], from[chunk];   // e^d[i], e^(d[63] - d[i])
};
constexpr int token_stride = chunk + 4;  // floats
struct ValuePart {
  float u[slice * token_stride];  // U, transposed
};

struct Chunks {
  const float *q, *k, *v, *dt, *beta, *a, *dt_bias;
  float* y;
  States state;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, dt_token, dt_head, beta_token, y_token, y_head;
  int heads, key_heads, v_dim, num_rows;
  float scale, l2_eps;
  KeyPart* key_parts;      // [chunks, key_heads]
  HeadPart* head_parts;    // [chunks, heads]
  ValuePart* value_parts;  // [chunks, heads, v_dim / slice]
};

__host__ __device__ inline int chunks_of(int fresh) {
  return fresh < chunk ? 0 : (fresh + chunk - 1) / chunk;
}

// Bounded to what f16 holds.
__device__ __half2 to_halves(float x, float y) {
  uint32_t both;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  __half2 halves;
  memcpy(&halves, &both, 4);
  return halves;
}
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

// The step's number of the first chunk of a row.
__device__ int first_chunk(const Chunks& a, int row) {
  int sum = 0;
  for (int at = threadIdx.x % 32; at < row; at += 32)
    sum += chunks_of(a.state.row_offsets[at + 1] - a.state.row_offsets[at]);
  return int(__reduce_add_sync(all, unsigned(sum)));
}

__device__ uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}
__device__ void copy_sixteen(void* to, const void* from, bool used = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(used ? 16 : 0)
               : "memory");
}
template <bool transposed>
__device__ void load_four(uint32_t (&m)[4], const __half* row) {
  if constexpr (transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
}
__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Fragments of 16 x 16 elements at m. As an operand of rows: stored [row][k], or [k][row].
__device__ void load_rows(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<false>(frag, m + (lane % 16) * stride + lane / 16 * 8);
}
__device__ void load_rows_transposed(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<true>(frag, m + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}
// As operands of two groups of eight columns (elements 0, 1 and 2, 3): stored [k][column], or [column][k].
__device__ void load_columns(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<true>(frag, m + (lane % 16) * stride + lane / 16 * 8);
}
__device__ void load_columns_transposed(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<false>(frag, m + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
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

struct Stage {
  KeyPart keys;
  HeadPart head;
  ValuePart values;
};
constexpr int stages = 2;
struct Walk {
  Stage stage[stages];
  __half state[key_dim * slice_stride];
  __half fresh[2][chunk * slice_stride];  // n, and n with the decay to the chunk's end
  uint64_t full[stages];
};

// A contiguous piece to shared memory: on Hopper by the copy engine, asked for by one thread.
__device__ void copy_piece(void* to, const void* from, int bytes, uint64_t* full) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(full))
                 : "memory");
#else
  for (int i = int(threadIdx.x) * 16; i < bytes; i += threads * 16)
    copy_sixteen(static_cast<std::byte*>(to) + i, static_cast<const std::byte*>(from) + i);
#endif
}

__device__ void load_chunk(const Chunks& a, Walk& shared, int which, int64_t index, int head, int slice_index) {
  Stage& stage = shared.stage[which];
  uint64_t* full = &shared.full[which];
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full)),
                 "r"(uint32_t(sizeof(Stage)))
                 : "memory");
#endif
  const int64_t item = index * a.heads + head;
  copy_piece(&stage.keys, &a.key_parts[index * a.key_heads + head / (a.heads / a.key_heads)], sizeof stage.keys, full);
  copy_piece(&stage.head, &a.head_parts[item], sizeof stage.head, full);
  copy_piece(&stage.values, &a.value_parts[item * (a.v_dim / slice) + slice_index], sizeof stage.values, full);
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until this chunk has come. Others' copies are seen after a barrier of the block.
__device__ void await_chunk(Walk& shared, int which, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(shared_address(&shared.full[which])),
      "r"(parity)
      : "memory");
#else
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

// Block (32 columns of a head, row). Warp w holds the state's rows 16 w to 16 w + 15; warps 0 to 3 make n and 4 to 7 y,
// 16 tokens each.
__global__ void __launch_bounds__(threads, 1) walk(Chunks a) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Walk*>(memory);
  follow_previous();
  const int slices = a.v_dim / slice, head = blockIdx.x / slices, first_column = blockIdx.x % slices * slice;
  const int row = blockIdx.y, begin = a.state.row_offsets[row], fresh = a.state.row_offsets[row + 1] - begin;
  const int chunks = chunks_of(fresh);
  if (chunks == 0) return;
  const int64_t first = first_chunk(a, row);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  // The thread's two rows of the state, columns 8 n + 2 quad and the next.
  const int64_t offset = (int64_t(head) * key_dim + warp * 16 + g) * a.v_dim + first_column + quad * 2;
  float state[slice / 8][4] = {};
  if (read != nullptr)
    for (int n = 0; n < slice / 8; ++n)
      for (int half = 0; half < 2; ++half) {
        const float2 two = *reinterpret_cast<const float2*>(read + offset + int64_t(half) * 8 * a.v_dim + n * 8);
        state[n][half * 2] = two.x, state[n][half * 2 + 1] = two.y;
      }
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    for (uint64_t& full : shared.full)
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(shared_address(&full))
          : "memory");
  __syncthreads();
#endif
  load_chunk(a, shared, 0, first, head, first_column / slice);
  for (int c = 0; c < chunks; ++c) {
    const Stage& stage = shared.stage[c % stages];
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<__half2*>(&shared.state[(warp * 16 + g + half * 8) * slice_stride + n * 8 + quad * 2]) =
            to_halves(state[n][half * 2], state[n][half * 2 + 1]);
    await_chunk(shared, c % stages, c / stages & 1);
    __syncthreads();  // and nobody reads the stage of the chunk before any more
    if (c + 1 < chunks) load_chunk(a, shared, (c + 1) % stages, first + c + 1, head, first_column / slice);

    const int token = warp % 4 * 16;
    float sums[slice / 8][4] = {};
#pragma unroll
    for (int k = 0; k < key_dim; k += 16) {
      uint32_t left[4], right[4];
      if (warp < 4) {
        load_rows_transposed(left, &stage.head.w[k * pair_stride + token], pair_stride);
      } else {
        load_rows(left, &stage.keys.q[token * key_stride + k], key_stride);
      }
#pragma unroll
      for (int n = 0; n < slice / 8; n += 2) {
        load_columns(right, &shared.state[k * slice_stride + n * 8], slice_stride);
        multiply(sums[n], left, right[0], right[1]);
        multiply(sums[n + 1], left, right[2], right[3]);
      }
    }
    if (warp < 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = token + g + half * 8;
        const float decay = stage.head.from[i];
#pragma unroll
        for (int n = 0; n < slice / 8; ++n) {
          const float* u = &stage.values.u[(n * 8 + quad * 2) * token_stride + i];
          const float x = u[0] - sums[n][half * 2], y = u[token_stride] - sums[n][half * 2 + 1];
          const int at = i * slice_stride + n * 8 + quad * 2;
          *reinterpret_cast<__half2*>(&shared.fresh[0][at]) = to_halves(x, y);
          *reinterpret_cast<__half2*>(&shared.fresh[1][at]) = to_halves(x * decay, y * decay);
        }
      }
    } else {
      const float upto[2] = {stage.head.upto[token + g], stage.head.upto[token + g + 8]};
#pragma unroll
      for (int n = 0; n < slice / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] *= upto[e / 2];
    }
    __syncthreads();

    const float decay = stage.head.upto[chunk - 1];
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[n][e] *= decay;
#pragma unroll
    for (int t = 0; t < chunk; t += 16) {
      uint32_t left[4], right[4];
      load_rows_transposed(left, &stage.keys.k[t * key_stride + warp * 16], key_stride);
#pragma unroll
      for (int n = 0; n < slice / 8; n += 2) {
        load_columns(right, &shared.fresh[1][t * slice_stride + n * 8], slice_stride);
        multiply(state[n], left, right[0], right[1]);
        multiply(state[n + 1], left, right[2], right[3]);
      }
    }
    if (warp >= 4) {
#pragma unroll
      for (int t = 0; t < chunk; t += 16) {
        uint32_t left[4], right[4];
        load_rows(left, &stage.head.p[token * pair_stride + t], pair_stride);
#pragma unroll
        for (int n = 0; n < slice / 8; n += 2) {
          load_columns(right, &shared.fresh[0][t * slice_stride + n * 8], slice_stride);
          multiply(sums[n], left, right[0], right[1]);
          multiply(sums[n + 1], left, right[2], right[3]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = c * chunk + token + g + half * 8;
        if (i >= fresh) continue;
        float* y = a.y + int64_t(begin + i) * a.y_token + head * a.y_head + first_column + quad * 2;
#pragma unroll
        for (int n = 0; n < slice / 8; ++n)
          *reinterpret_cast<float2*>(y + n * 8) = make_float2(sums[n][half * 2], sums[n][half * 2 + 1]);
      }
    }
  }
  if (write == nullptr) return;
  for (int n = 0; n < slice / 8; ++n)
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(write + offset + int64_t(half) * 8 * a.v_dim + n * 8) =
          make_float2(state[n][half * 2], state[n][half * 2 + 1]);
}

bool fours(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.strides[0] % 4 == 0 && view.strides[1] % 4 == 0;
}

}  // namespace

bool delta_takes_chunks(const GatedDeltaArgs& a) {
  return a.k.size(2) == key_dim && a.v.size(2) % slice == 0 && a.v.size(2) <= 128 && a.dt.size(2) == 1 && fours(a.q) &&
         fours(a.k) && fours(a.v) && fours(a.y) &&
         (reinterpret_cast<uintptr_t>(a.state.base) + uintptr_t(a.state.offset_bytes)) % 16 == 0;
}

void delta_by_chunks(const GatedDeltaArgs& a, ExecContext& context) {
  Chunks args{.q = data_of<float>(a.q),
              .k = data_of<float>(a.k),
              .v = data_of<float>(a.v),
              .dt = data_of<float>(a.dt),
              .beta = data_of<float>(a.beta),
              .a = a.a,
              .dt_bias = a.dt_bias,
              .y = data_of<float>(a.y),
              .state = states_of(a.rows, a.state),
              .q_token = a.q.strides[0],
              .q_head = a.q.strides[1],
              .k_token = a.k.strides[0],
              .k_head = a.k.strides[1],
              .v_token = a.v.strides[0],
              .v_head = a.v.strides[1],
              .dt_token = a.dt.strides[0],
              .dt_head = a.dt.strides[1],
              .beta_token = a.beta.strides[0],
              .y_token = a.y.strides[0],
              .y_head = a.y.strides[1],
              .heads = int(a.v.size(1)),
              .key_heads = int(a.k.size(1)),
              .v_dim = int(a.v.size(2)),
              .num_rows = int(a.rows.num_rows),
              .scale = a.scale,
              .l2_eps = a.l2_eps};
  // A row of 64 tokens is a chunk; one of 65 is two.
  const int64_t chunks = a.rows.num_tokens / chunk + std::min(a.rows.num_rows, a.rows.num_tokens / chunk);
  const Workspace::Scope scope(context.workspace);
  const auto alloc = [&](int64_t items, size_t bytes) {
    return context.workspace.alloc(DType::f32, {items, int64_t(bytes / sizeof(float))}).data;
  };
  const int64_t slices = args.v_dim / slice;
  args.key_parts = static_cast<KeyPart*>(alloc(chunks * args.key_heads, sizeof(KeyPart)));
  args.head_parts = static_cast<HeadPart*>(alloc(chunks * args.heads, sizeof(HeadPart)));
  args.value_parts = static_cast<ValuePart*>(alloc(chunks * args.heads * slices, sizeof(ValuePart)));
  static const bool raised =
      cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Prepare)) == cudaSuccess &&
      cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Walk)) == cudaSuccess;
  MEDLEY_CHECK(raised);
  launch_kernel("gated_delta_scan", prepare, {dim3(unsigned(args.heads), unsigned(chunks)), threads, sizeof(Prepare)},
                context, args);
  launch_kernel("gated_delta_scan", walk,
                {dim3(unsigned(args.heads * slices), unsigned(args.num_rows)), threads, sizeof(Walk)}, context, args);
}

}  // namespace medley::cuda
