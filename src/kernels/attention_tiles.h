// Attention: the boundary between the driver (paged_attention.cc, piece_attention.cc), which knows caches, rows and
// threads, and the block of arithmetic, which is compiled once per instruction set.
//
// The running softmax of a query goes over fixed blocks of keys in ascending order. What a block does to one query
// depends on that query and the keys it sees alone, never on the other queries that share the loads: so neither the
// tile a query falls into nor the chunk it came in changes a bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace medley::attention {

constexpr int block_keys = 64;
constexpr int max_rows = 32;  // query vectors (heads x tokens) that share one pass over the keys

constexpr int64_t padded(int64_t elements) {
  return (elements + 15) / 16 * 16;
}

// Query vectors and their running softmax: sum = sum over keys of exp(score - highest) * v, total the same without v.
struct Rows {
  int count = 0;
  int64_t k_dim = 0, rest_dim = 0;  // a key is k_dim elements, then rest_dim elsewhere (MLA's shared rotary part)
  int64_t v_dim = 0;
  float* q = nullptr;        // [count][padded(k_dim) + padded(rest_dim)], zeros in the padding
  float* sum = nullptr;      // [count][padded(v_dim)]
  float* highest = nullptr;  // [count]
  float* total = nullptr;    // [count]
  float* scores = nullptr;   // [count][block_keys], scratch
  float* shrink = nullptr;   // [max_rows], scratch
  float* fresh = nullptr;    // [max_rows], scratch

  int64_t q_stride() const { return padded(k_dim) + padded(rest_dim); }
  int64_t v_stride() const { return padded(v_dim); }
};

// A block's keys: elements [begin, end) of the pointer arrays are set; row r sees [first[r], last[r]) of them.
struct Block {
  const std::byte* k[block_keys];
  const std::byte* rest[block_keys];
  const std::byte* v[block_keys];
  int begin = 0, end = 0;
  int32_t first[max_rows], last[max_rows];
};

struct Scoring {
  float scale = 1;
  float softcap = 0;
};

// Takes one block into the rows' running softmax: keys at block.k + k_shift bytes, values at block.v + v_shift. The
// same of `next` (or null) is fetched from memory meanwhile.
using BlockFunction = void (*)(const Rows& rows, const Block& block, const Block* next, int64_t k_shift,
                               int64_t v_shift, const Scoring& scoring);

}  // namespace medley::attention

namespace medley::simd {

attention::BlockFunction attention_block(DType kv);  // f32 or bf16 keys and values

}  // namespace medley::simd
