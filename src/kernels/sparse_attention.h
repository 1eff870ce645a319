// Sparse attention over a paged cache (DeepSeek-V3.2, section 2.1): the lightning indexer chooses the keys that a query
// sees, and attention runs over those alone.
#pragma once

#include "kernels/op.h"
#include "kernels/rows.h"

namespace medley {

// index_select: of the keys at positions p up to the query's own, the top_k with the highest index score
//   sum over heads h of weights[h] * relu(q[h] . k[p]),
// ties to the lower position (later_ties: to the higher); all of them, unscored, where there are no more than top_k.
// (The published scores have constant factors, which change no choice.)
struct IndexSelectDesc {
  int64_t heads = 0, dim = 0;
  DType cache = DType::bf16;
  bool later_ties = false;
  std::string describe() const;
};
struct IndexSelectArgs {
  TensorView q;        // f32 [tokens, heads, dim]
  TensorView weights;  // f32 [tokens, heads]
  PagedCache cache;    // a row is one key [dim], shared by the heads
  RaggedRows rows;
  int64_t top_k = 0;
  TensorView selected;  // i32 [tokens, n], n >= min(top_k, longest context): ascending positions, then -1
  bool later_ties = false;
};
using IndexSelectOp = Op<IndexSelectDesc, IndexSelectArgs>;
const IndexSelectOp& index_select_op();

// sparse_attention: paged_attention over the selected positions only, added up in ascending order.
struct SparseAttentionDesc {
  int64_t heads = 0, kv_heads = 0;
  int64_t k_dim = 0, v_dim = 0;
  int64_t k_offset = 0, v_offset = 0;  // elements, in a cache row; head h's key at k_offset + h * k_dim
  DType cache = DType::bf16;
  DType y = DType::f32;
  std::string describe() const;
};
struct SparseAttentionArgs {
  TensorView q;  // f32 [tokens, heads, k_dim]
  PagedCache cache;
  RaggedRows rows;
  TensorView selected;  // i32 [tokens, n]: ascending positions, then -1; at least one
  int64_t kv_heads = 0;
  int64_t v_dim = 0;
  int64_t k_offset = 0, v_offset = 0;
  float scale = 1;
  TensorView y;  // f32 or bf16 [tokens, heads, v_dim]
};
using SparseAttentionOp = Op<SparseAttentionDesc, SparseAttentionArgs>;
const SparseAttentionOp& sparse_attention_op();

}  // namespace medley
