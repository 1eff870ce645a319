// Attention over the paged cache, the writing of its rows, and attention over gathered keys.
//
// One op serves GQA and absorbed MLA: a cache row holds the keys of kv_heads heads at k_offset and the values at
// v_offset; for MLA kv_heads is 1, the key is the whole row (latent and rotary part) and the value its first v_dim
// elements, the latent. (GQA: Ainslie et al. 2023; MLA: DeepSeek-V2, section 2.1.)
#pragma once

#include "kernels/op.h"
#include "kernels/rows.h"

namespace medley {

// cache_write: row of each new token = (a[t], b[t]), converted to the cache's dtype.
struct CacheWriteDesc {
  int64_t a_dim = 0, b_dim = 0;
  DType cache = DType::bf16;
  std::string describe() const;
};
struct CacheWriteArgs {
  TensorView a;  // f32 [tokens, a_dim], rows may be strided
  TensorView b;  // f32 [tokens, b_dim], rows may be strided
  PagedCache cache;
};
using CacheWriteOp = Op<CacheWriteDesc, CacheWriteArgs>;
const CacheWriteOp& cache_write_op();

// cache_gather: y[i] = the cache row of token first + i of row `row`, all `y.size(1)` elements.
struct CacheGatherDesc {
  int64_t dim = 0;
  DType cache = DType::bf16;
  std::string describe() const;
};
struct CacheGatherArgs {
  PagedCache cache;
  int64_t row = 0;
  int64_t first = 0;
  TensorView y;  // cache's dtype [count, dim]
};
using CacheGatherOp = Op<CacheGatherDesc, CacheGatherArgs>;
const CacheGatherOp& cache_gather_op();

// paged_attention: causal softmax(scale * q k^T) v over each row's own context, new tokens included (they have been
// written to the cache before). How the context is cut into pieces depends only on its length and this description.
struct PagedAttentionDesc {
  int64_t heads = 0, kv_heads = 0;
  int64_t k_dim = 0, v_dim = 0;
  int64_t k_offset = 0, v_offset = 0;  // elements, in a cache row; head h's key at k_offset + h * k_dim
  DType cache = DType::bf16;
  DType y = DType::f32;
  bool window = false, sinks = false, softcap = false;
  std::string describe() const;
};
struct PagedAttentionArgs {
  TensorView q;  // f32 [tokens, heads, k_dim]
  PagedCache cache;
  RaggedRows rows;
  int64_t kv_heads = 0;
  int64_t v_dim = 0;
  int64_t k_offset = 0, v_offset = 0;
  float scale = 1;
  int32_t window = 0;            // tokens seen, the query's own included; 0: all
  float softcap = 0;             // score = softcap * tanh(score / softcap); 0: none
  const float* sinks = nullptr;  // [heads]: a logit that joins the softmax's sum and has no value
  TensorView y;                  // f32 or bf16 [tokens, heads, v_dim]
};
using PagedAttentionOp = Op<PagedAttentionDesc, PagedAttentionArgs>;
const PagedAttentionOp& paged_attention_op();

// piece_attention: one row's queries over one piece of its keys, gathered and up-projected (MLA prefill). Results of
// the pieces are merged in ascending order through the running log-sum-exp.
struct PieceAttentionDesc {
  int64_t heads = 0;
  int64_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  DType kv = DType::f32;
  std::string describe() const;
};
struct PieceAttentionArgs {
  TensorView q;            // f32 [queries, heads, nope_dim + rope_dim]
  TensorView k_nope;       // f32 or bf16 [keys, heads, nope_dim], any strides with the last 1
  TensorView k_rope;       // [keys, rope_dim], same dtype, shared by the heads
  TensorView v;            // [keys, heads, v_dim], same dtype
  int64_t q_position = 0;  // of the first query
  int64_t k_position = 0;  // of the first key; a key is seen when its position is not after the query's
  float scale = 1;
  bool first = true;  // start y and lse; else merge into them
  TensorView y;       // f32 [queries, heads, v_dim], normalised after every piece
  TensorView lse;     // f32 [queries, heads]
};
using PieceAttentionOp = Op<PieceAttentionDesc, PieceAttentionArgs>;
const PieceAttentionOp& piece_attention_op();

}  // namespace medley
