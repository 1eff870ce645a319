// What the two kernels of the chunked delta rule share (delta_chunks.cu): what one leaves to the other, and fragments
// of the matrix instruction.
#pragma once

#include <cstring>

#include "kernels/cuda/delta_chunks.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/state_slots.h"

namespace medley::cuda::delta {

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
__device__ inline __half2 to_halves(float x, float y) {
  uint32_t both;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
  __half2 halves;
  memcpy(&halves, &both, 4);
  return halves;
}
__device__ inline uint32_t shared_address(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}
__device__ inline void copy_sixteen(void* to, const void* from, bool used = true) {
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
__device__ inline void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Fragments of 16 x 16 elements at m. As an operand of rows: stored [row][k], or [k][row].
__device__ inline void load_rows(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<false>(frag, m + (lane % 16) * stride + lane / 16 * 8);
}
__device__ inline void load_rows_transposed(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<true>(frag, m + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}
// As operands of two groups of eight columns (elements 0, 1 and 2, 3): stored [k][column], or [column][k].
__device__ inline void load_columns(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<true>(frag, m + (lane % 16) * stride + lane / 16 * 8);
}
__device__ inline void load_columns_transposed(uint32_t (&frag)[4], const __half* m, int stride) {
  const int lane = threadIdx.x % 32;
  load_four<false>(frag, m + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8);
}

// Chunks of the step at a time, and all of its heads.
void prepare_chunks(const Chunks& a, int64_t chunks, ExecContext& context);

}  // namespace medley::cuda::delta
