// What the kernels of absorbed MLA share: the work, the steps of the softmax that must give the same bits wherever they
// are taken, and where results go. docs/kernels/mla_decode.md tells how the pieces are cut.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/common.h"
#include "kernels/sm90/hopper.h"

namespace medley::sm90::absorbed {

constexpr int latent = 512, key_dim = 576;
constexpr int rows = 64;                           // query rows of a block: the M of the matrix instruction
constexpr int keys = 64;                           // of one buffer
constexpr int tile_columns = 64;                   // 128 bytes: the swizzle's width
constexpr int tile_bytes = rows * 128;             // 64 rows of 64 elements
constexpr int tiles = key_dim / tile_columns;      // 9: eight of the latent, one rotary
constexpr int operand_bytes = tiles * tile_bytes;  // 72 KiB: the queries, or 64 keys

struct Mla {
  const float* q;
  void* y;
  float* partial;      // [tokens of this launch, max_pieces, heads, latent], normalised
  float* partial_lse;  // [tokens of this launch, max_pieces, heads], base 2
  const int32_t *block_table, *row_offsets, *computed;
  int64_t q_token, q_head, y_token, y_head, table_stride;
  int32_t tokens_per_block, copy_rows, num_rows, heads, row_tiles, max_pieces, piece_tokens;
  int32_t group_pieces, groups;     // pieces one block takes in a row, with the same queries; no result depends on them
  int32_t first_token, last_token;  // this launch's tokens of the step
  float scale_log2;
  bool y_bf16, merges;  // merges: a block has all pieces of its queries and adds them itself
};

// One block's work: 64 query rows of one request against some of its pieces.
struct Work {
  int row;
  int token, computed;  // the request's first new token, and what it had before
  int first, count;     // query rows, numbered token * heads + head within the request
  int begin, end;       // keys of the pieces
};

__device__ inline int work_items(const Mla& a) {
  return a.row_tiles * a.num_rows * a.groups;
}

// Neighbouring blocks take the 64-row tiles of one request, so that they read the same keys at the same time.
__device__ inline bool open_work(const Mla& a, int index, Work& work) {
  const int tile = index % a.row_tiles, group = index / a.row_tiles / a.num_rows;
  work.row = index / a.row_tiles % a.num_rows;
  work.token = a.row_offsets[work.row];
  work.computed = a.computed[work.row];
  const int all = (a.row_offsets[work.row + 1] - work.token) * a.heads;
  work.first = tile * rows;
  work.count = min(rows, all - work.first);
  if (work.count <= 0) return false;
  const int last = (work.first + work.count - 1) / a.heads;
  if (work.token + last < a.first_token || work.token + work.first / a.heads >= a.last_token) return false;
  work.begin = group * a.group_pieces * a.piece_tokens;
  work.end = min(work.begin + a.group_pieces * a.piece_tokens, work.computed + last + 1);
  return work.begin < work.end;
}

// The instruction by itself; exp2f adds four for denormal results.
__device__ inline float exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ inline float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// Keys at or past `limit[i]` are not seen by the thread's row i.
template <int n>
__device__ inline void mask(float (&scores)[n], int first_key, int quad, const int (&limit)[2]) {
  if (first_key + 2 * n <= min(limit[0], limit[1])) return;
#pragma unroll
  for (int i = 0; i < n; ++i)
    if (first_key + i / 4 * 8 + quad * 2 + i % 2 >= limit[i / 2 % 2]) scores[i] = -INFINITY;
}

// A row's weights may grow to 2^8 before its sums are brought to the new maximum: float32 holds that easily, and most
// buffers then cost no pass over the accumulators. Decided by each row for itself.
constexpr float rescale_above = 8;

// What weights are relative to after a step whose largest score is `now`; by what the sums before must be scaled.
__device__ inline float raise(float now, float& highest, float& rescale) {
  const float before = highest;
  if (now > before + rescale_above) highest = now;
  const float base = highest == -INFINITY ? 0.0f : highest;  // none seen: weights exp2(-inf)
  rescale = exp2(before - base);
  return base;
}

// Where the first piece's result of (token, head) lies; the next piece's, `heads` further on.
__device__ inline int64_t partial_item(const Mla& a, int token, int head) {
  return int64_t(token - a.first_token) * a.max_pieces * a.heads + head;
}

__device__ inline void write_two(const Mla& a, int64_t at, float x, float y) {
  if (a.y_bf16) {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(a.y) + at) = __floats2bfloat162_rn(x, y);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(a.y) + at) = make_float2(x, y);
  }
}

// One piece a cluster, its steps and value columns spread over eight blocks: the bits of the walk through the piece by
// one block, in half of the time. For up to 16 query rows a request and pieces of 512 keys.
constexpr int spread_rows = 16, spread_keys = 512;
void attend_spread(const CUtensorMap& map, const Mla& a, ExecContext& context);
int spread_clusters();  // how many run at a time

// Up to 16 query rows a request and pieces of at most 512 keys: keys in the matrix instruction's rows, queries in its
// columns. The bits of a block of 64 rows.
constexpr int narrow_rows = 16;
void attend_narrow(const CUtensorMap& map, const Mla& a, int processors, ExecContext& context);

// Adds the pieces of the tokens of this launch that have several.
void merge_pieces(const Mla& a, ExecContext& context);

}  // namespace medley::sm90::absorbed
