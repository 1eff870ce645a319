#include "kernels/sparse_attention.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select;
extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention;
}  // namespace ref
namespace cuda {
extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select;
extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention;
}  // namespace cuda

namespace {

void check_rows(std::string_view op, const PagedCache& cache, const RaggedRows& rows, int64_t elements) {
  check_tensor(op, "block_table", cache.block_table, {rows.num_rows, -1}, {DType::i32});
  if (elements * int64_t(size_of(cache.dtype)) > cache.row_bytes)
    fail("[{}] {} elements of {} do not fit a cache row of {} bytes", op, elements, name_of(cache.dtype),
         cache.row_bytes);
}

void check_select(const IndexSelectArgs& a) {
  const int64_t tokens = a.rows.num_tokens;
  check_tensor("index_select", "q", a.q, {tokens, -1, -1}, {DType::f32});
  check_tensor("index_select", "weights", a.weights, {tokens, a.q.size(1)}, {DType::f32});
  check_tensor("index_select", "selected", a.selected, {tokens, -1}, {DType::i32});
  check_rows("index_select", a.cache, a.rows, a.q.size(2));
  if (a.top_k <= 0 || a.selected.size(1) < std::min(a.top_k, a.rows.max_context))
    fail("[index_select] top {} of {} keys do not fit selected {}", a.top_k, a.rows.max_context, a.selected.describe());
}

void check_sparse(const SparseAttentionArgs& a) {
  const int64_t tokens = a.rows.num_tokens;
  check_tensor("sparse_attention", "q", a.q, {tokens, -1, -1}, {DType::f32});
  check_tensor("sparse_attention", "selected", a.selected, {tokens, -1}, {DType::i32});
  check_tensor("sparse_attention", "y", a.y, {tokens, a.q.size(1), a.v_dim}, {DType::f32, DType::bf16});
  if (a.kv_heads <= 0 || a.q.size(1) % a.kv_heads != 0)
    fail("[sparse_attention] {} query heads do not divide over {} key heads", a.q.size(1), a.kv_heads);
  check_rows("sparse_attention", a.cache, a.rows,
             std::max(a.k_offset + a.kv_heads * a.q.size(2), a.v_offset + a.kv_heads * a.v_dim));
}

}  // namespace

std::string IndexSelectDesc::describe() const {
  return fmt::format("{} heads of {}, cache {}", heads, dim, medley::name_of(cache));
}
std::string SparseAttentionDesc::describe() const {
  return fmt::format("{} heads over {}, k {} v {}, cache {}", heads, kv_heads, k_dim, v_dim, medley::name_of(cache));
}

const IndexSelectOp& index_select_op() {
  static constexpr const Implementation<IndexSelectDesc, IndexSelectArgs>* table[] = {&ref::index_select,
                                                                                      &cuda::index_select};
  static const IndexSelectOp op{"index_select", check_select, table};
  return op;
}

const SparseAttentionOp& sparse_attention_op() {
  static constexpr const Implementation<SparseAttentionDesc, SparseAttentionArgs>* table[] = {&ref::sparse_attention,
                                                                                              &cuda::sparse_attention};
  static const SparseAttentionOp op{"sparse_attention", check_sparse, table};
  return op;
}

}  // namespace medley
