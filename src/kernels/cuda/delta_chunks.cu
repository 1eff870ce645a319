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

struct Chunks {
  const float *q, *k, *v, *dt, *beta, *a, *dt_bias;
  float* y;
  States state;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, dt_token, dt_head, beta_token, y_token, y_head;
  int heads, key_heads, v_dim, num_rows;
  float scale, l2_eps;
  // Of each chunk and head: [chunk, key_dim] of keys, queries (per key head) and W, [chunk, chunk] of P, U and d.
  __half *keys, *queries, *w, *pairs;
  float *u, *decays;
};

__host__ __device__ inline int chunks_of(int fresh) {
  return fresh < chunk ? 0 : (fresh + chunk - 1) / chunk;
}

__device__ float bounded(float value) {  // to what f16 holds
  return fminf(fmaxf(value, -65504.0f), 65504.0f);
}
__device__ __half to_half(float value) {
  return __float2half_rn(bounded(value));
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

// A float as two halves, 22 bits together.
struct Split {
  __half high, low;
};
__device__ Split split(float value) {
  const __half high = to_half(value);
  return {high, __float2half_rn(value - __half2float(high))};
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
  float v[chunk * value_stride];                    // becomes U, as k becomes W
  float d[chunk], b[chunk], d_factor[chunk];        // d_factor: b e^d
};

// Column `column` of the inverse of a diagonal block: a thread each.
__device__ void invert(Prepare& shared, int which, int column) {
  float x[block];
#pragma unroll
  for (int i = 0; i < block; ++i) {
    x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) x[i] = fmaf(-shared.inside[which][i][j], x[j], x[i]);
    const Split two = split(x[i]);
    shared.inverse[0][which][i * block_stride + column] = two.high;
    shared.inverse[1][which][i * block_stride + column] = two.low;
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
    const float x = bounded(d[i / 2][i % 2 * 2]), y = bounded(d[i / 2][i % 2 * 2 + 1]);
    const __half2 high = __floats2half2_rn(x, y);
    const float2 back = __half22float2(high);
    const __half2 low = __floats2half2_rn(x - back.x, y - back.y);
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

// Block (chunk of the step, head).
__global__ void __launch_bounds__(threads, 2) prepare(Chunks a) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Prepare*>(memory);
  int row, within;
  if (!find_chunk(a, blockIdx.x, row, within)) return;
  const int head = blockIdx.y, ratio = a.heads / a.key_heads, key_head = head / ratio;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t first = a.state.row_offsets[row] + int64_t(within) * chunk;
  const int count = min(chunk, a.state.row_offsets[row + 1] - int(first));
  const int64_t item = int64_t(blockIdx.x) * a.heads + head, key_item = int64_t(blockIdx.x) * a.key_heads + key_head;

  for (int i = threadIdx.x; i < chunk * a.v_dim / 4; i += threads) {
    const int t = i / (a.v_dim / 4), piece = i % (a.v_dim / 4) * 4;
    const bool used = t < count;
    copy_sixteen(&shared.v[t * value_stride + piece],
                 a.v + (used ? (first + t) * a.v_token + head * a.v_head + piece : 0), used);
  }
  // Keys and queries, normalised; zeros past the last token. All loads of a warp are under way together.
  constexpr int each = chunk / warps;
  float4 keys[each], queries[each];
#pragma unroll
  for (int r = 0; r < each; ++r) {
    const int i = warp + r * warps;
    keys[r] = queries[r] = make_float4(0, 0, 0, 0);
    if (i < count) {
      keys[r] = *reinterpret_cast<const float4*>(a.k + (first + i) * a.k_token + key_head * a.k_head + lane * 4);
      queries[r] = *reinterpret_cast<const float4*>(a.q + (first + i) * a.q_token + key_head * a.q_head + lane * 4);
    }
  }
#pragma unroll
  for (int r = 0; r < each; ++r) {
    const int i = warp + r * warps;
    const float4 k = keys[r], q = queries[r];
    const float k_factor = 1.0f / sqrtf(warp_sum(k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w) + a.l2_eps);
    const float q_factor = a.scale / sqrtf(warp_sum(q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w) + a.l2_eps);
    const __half2 halves[4] = {
        __floats2half2_rn(k.x * k_factor, k.y * k_factor), __floats2half2_rn(k.z * k_factor, k.w * k_factor),
        __floats2half2_rn(q.x * q_factor, q.y * q_factor), __floats2half2_rn(q.z * q_factor, q.w * q_factor)};
    uint2 bits[2];
    memcpy(bits, halves, sizeof(bits));
    *reinterpret_cast<uint2*>(&shared.k[i * key_stride + lane * 4]) = bits[0];
    *reinterpret_cast<uint2*>(&shared.q[i * key_stride + lane * 4]) = bits[1];
    if (head % ratio == 0) {
      *reinterpret_cast<uint2*>(a.keys + (key_item * chunk + i) * key_dim + lane * 4) = bits[0];
      *reinterpret_cast<uint2*>(a.queries + (key_item * chunk + i) * key_dim + lane * 4) = bits[1];
    }
  }
  if (warp == 0) {  // lane: tokens 2 lane and 2 lane + 1
    float own[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t t = first + lane * 2 + i;
      const bool used = lane * 2 + i < count;
      own[i] = used ? a.a[head] * softplus(a.dt[t * a.dt_token + head * a.dt_head] + a.dt_bias[head]) : 0.0f;
      shared.b[lane * 2 + i] = used ? sigmoid(a.beta[t * a.beta_token + head]) : 0.0f;
    }
    float upto = own[0] + own[1];
    for (int step = 1; step < 32; step *= 2) {
      const float other = __shfl_up_sync(all, upto, step);
      if (lane >= step) upto += other;
    }
    shared.d[lane * 2] = upto - own[1], shared.d[lane * 2 + 1] = upto;
    a.decays[item * chunk + lane * 2] = upto - own[1], a.decays[item * chunk + lane * 2 + 1] = upto;
  }
  __syncthreads();

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
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = i0 + g + half * 8, j = j0 + n * 8 + quad * 2;
        float strict[2], upto[2];
        for (int e = 0; e < 2; ++e) {
          const float decay = j + e <= i ? expf(shared.d[i] - shared.d[j + e]) : 0.0f;
          strict[e] = j + e < i ? shared.b[i] * decay * kk[n][half * 2 + e] : 0.0f;
          upto[e] = decay * qk[n][half * 2 + e];
        }
        if (i / block == j / block) {
          *reinterpret_cast<float2*>(&shared.inside[i / block][i % block][j % block]) =
              make_float2(strict[0], strict[1]);
        } else {
          const Split x = split(strict[0]), y = split(strict[1]);
          *reinterpret_cast<__half2*>(&shared.between[0][i * pair_stride + j]) = __halves2half2(x.high, y.high);
          *reinterpret_cast<__half2*>(&shared.between[1][i * pair_stride + j]) = __halves2half2(x.low, y.low);
        }
        *reinterpret_cast<__half2*>(a.pairs + (item * chunk + i) * chunk + j) = __floats2half2_rn(upto[0], upto[1]);
      }
  }
  __syncthreads();

  if (threadIdx.x < chunk) invert(shared, threadIdx.x / block, threadIdx.x % block);
  if (threadIdx.x < chunk) shared.d_factor[threadIdx.x] = shared.b[threadIdx.x] * expf(shared.d[threadIdx.x]);
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();

  // Warps 0 to 3 solve for W, 4 to 7 for U, 32 columns each, in the place of k and v: an element is read and written by
  // one thread.
  const int g = lane / 4, quad = lane % 4;
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const int column = warp % 4 * 32 + part * 16 + g;
    float x[blocks][2][4];
#pragma unroll
    for (int i = 0; i < chunk / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = i * 8 + quad * 2 + e % 2, c = column + e / 2 * 8;
        x[i / 2][i % 2][e] = warp < 4 ? shared.d_factor[t] * __half2float(shared.k[t * key_stride + c])
                                      : shared.b[t] * (c < a.v_dim ? shared.v[t * value_stride + c] : 0.0f);
      }
    solve(shared, x);
#pragma unroll
    for (int i = 0; i < chunk / 8; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = i * 8 + quad * 2 + e % 2, c = column + e / 2 * 8;
        if (warp < 4) {
          shared.k[t * key_stride + c] = to_half(x[i / 2][i % 2][e]);
        } else if (c < a.v_dim) {
          shared.v[t * value_stride + c] = x[i / 2][i % 2][e];
        }
      }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < chunk * key_dim / 8; i += threads) {
    const int t = i / (key_dim / 8), piece = i % (key_dim / 8) * 8;
    *reinterpret_cast<uint4*>(a.w + (item * chunk + t) * key_dim + piece) =
        *reinterpret_cast<const uint4*>(&shared.k[t * key_stride + piece]);
  }
  for (int i = threadIdx.x; i < chunk * a.v_dim / 4; i += threads) {
    const int t = i / (a.v_dim / 4), piece = i % (a.v_dim / 4) * 4;
    *reinterpret_cast<float4*>(a.u + (item * chunk + t) * a.v_dim + piece) =
        *reinterpret_cast<const float4*>(&shared.v[t * value_stride + piece]);
  }
}

struct Stage {
  __half k[chunk * key_stride], q[chunk * key_stride], w[chunk * key_stride], p[chunk * pair_stride];
  float u[chunk][slice];
  float d[chunk];
};
constexpr int stages = 3;
struct Walk {
  Stage stage[stages];
  __half state[key_dim * slice_stride];
  __half fresh[2][chunk * slice_stride];  // n, and n with the decay to the chunk's end
};

__device__ void load_chunk(const Chunks& a, Stage& stage, int64_t index, int head, int first_column) {
  const int64_t item = index * a.heads + head, key_item = index * a.key_heads + head / (a.heads / a.key_heads);
  for (int i = threadIdx.x; i < chunk * key_dim / 8; i += threads) {
    const int row = i / (key_dim / 8), piece = i % (key_dim / 8) * 8;
    copy_sixteen(&stage.k[row * key_stride + piece], a.keys + (key_item * chunk + row) * key_dim + piece);
    copy_sixteen(&stage.q[row * key_stride + piece], a.queries + (key_item * chunk + row) * key_dim + piece);
    copy_sixteen(&stage.w[row * key_stride + piece], a.w + (item * chunk + row) * key_dim + piece);
  }
  for (int i = threadIdx.x; i < chunk * chunk / 8; i += threads) {
    const int row = i / (chunk / 8), piece = i % (chunk / 8) * 8;
    copy_sixteen(&stage.p[row * pair_stride + piece], a.pairs + (item * chunk + row) * chunk + piece);
  }
  for (int i = threadIdx.x; i < chunk * slice / 4; i += threads) {
    const int row = i / (slice / 4), piece = i % (slice / 4) * 4;
    copy_sixteen(&stage.u[row][piece], a.u + (item * chunk + row) * a.v_dim + first_column + piece);
  }
  if (threadIdx.x < chunk / 4) copy_sixteen(&stage.d[threadIdx.x * 4], a.decays + item * chunk + threadIdx.x * 4);
}

// Block (32 columns of a head, row). Warp w holds the state's rows 16 w to 16 w + 15; warps 0 to 3 make n and 4 to 7 y,
// 16 tokens each.
__global__ void __launch_bounds__(threads, 1) walk(Chunks a) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Walk*>(memory);
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
  for (int c = 0; c < stages - 1; ++c) {
    if (c < chunks) load_chunk(a, shared.stage[c], first + c, head, first_column);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int c = 0; c < chunks; ++c) {
    const Stage& stage = shared.stage[c % stages];
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        __half2 two;
        two.x = to_half(state[n][half * 2]), two.y = to_half(state[n][half * 2 + 1]);
        *reinterpret_cast<__half2*>(&shared.state[(warp * 16 + g + half * 8) * slice_stride + n * 8 + quad * 2]) = two;
      }
    asm volatile("cp.async.wait_group %0;" ::"n"(stages - 2) : "memory");
    __syncthreads();  // this chunk has come and nobody reads the stage of the one before any more
    if (const int next = c + stages - 1; next < chunks)
      load_chunk(a, shared.stage[next % stages], first + next, head, first_column);
    asm volatile("cp.async.commit_group;" ::: "memory");

    const int token = warp % 4 * 16;
    float sums[slice / 8][4] = {};
    const __half* rows = warp < 4 ? stage.w : stage.q;
#pragma unroll
    for (int k = 0; k < key_dim; k += 16) {
      uint32_t left[4], right[4];
      load_rows(left, &rows[token * key_stride + k], key_stride);
#pragma unroll
      for (int n = 0; n < slice / 8; n += 2) {
        load_columns(right, &shared.state[k * slice_stride + n * 8], slice_stride);
        multiply(sums[n], left, right[0], right[1]);
        multiply(sums[n + 1], left, right[2], right[3]);
      }
    }
    const float end = stage.d[chunk - 1];
    if (warp < 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = token + g + half * 8;
        const float decay = expf(end - stage.d[i]);
#pragma unroll
        for (int n = 0; n < slice / 8; ++n) {
          const float2 u = *reinterpret_cast<const float2*>(&stage.u[i][n * 8 + quad * 2]);
          const float x = u.x - sums[n][half * 2], y = u.y - sums[n][half * 2 + 1];
          const int at = i * slice_stride + n * 8 + quad * 2;
          __half2 two;
          two.x = to_half(x), two.y = to_half(y);
          *reinterpret_cast<__half2*>(&shared.fresh[0][at]) = two;
          two.x = to_half(x * decay), two.y = to_half(y * decay);
          *reinterpret_cast<__half2*>(&shared.fresh[1][at]) = two;
        }
      }
    } else {
#pragma unroll
      for (int n = 0; n < slice / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] *= expf(stage.d[token + g + e / 2 * 8]);
    }
    __syncthreads();

    const float decay = expf(end);
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[n][e] *= decay;
#pragma unroll
    for (int t = 0; t < chunk; t += 16) {
      uint32_t left[4], right[4];
      load_rows_transposed(left, &stage.k[t * key_stride + warp * 16], key_stride);
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
        load_rows(left, &stage.p[token * pair_stride + t], pair_stride);
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
  const auto alloc = [&](DType dtype, int64_t items, int64_t elements) {
    return context.workspace.alloc(dtype, {items, elements}).data;
  };
  const int64_t items = chunks * args.heads, key_items = chunks * args.key_heads;
  args.keys = static_cast<__half*>(alloc(DType::f16, key_items, chunk * key_dim));
  args.queries = static_cast<__half*>(alloc(DType::f16, key_items, chunk * key_dim));
  args.w = static_cast<__half*>(alloc(DType::f16, items, chunk * key_dim));
  args.pairs = static_cast<__half*>(alloc(DType::f16, items, chunk * chunk));
  args.u = static_cast<float*>(alloc(DType::f32, items, chunk * args.v_dim));
  args.decays = static_cast<float*>(alloc(DType::f32, items, chunk));
  static const bool raised =
      cudaFuncSetAttribute(prepare, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Prepare)) == cudaSuccess &&
      cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Walk)) == cudaSuccess;
  MEDLEY_CHECK(raised);
  const cudaStream_t stream = stream_of(context);
  prepare<<<dim3(unsigned(chunks), unsigned(args.heads)), threads, sizeof(Prepare), stream>>>(args);
  walk<<<dim3(unsigned(args.heads * (args.v_dim / slice)), unsigned(args.num_rows)), threads, sizeof(Walk), stream>>>(
      args);
  check_launch("gated_delta_scan");
}

}  // namespace medley::cuda
