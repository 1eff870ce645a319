#include "kernels/attention.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<CacheWriteDesc, CacheWriteArgs> cache_write;
extern const Implementation<CacheGatherDesc, CacheGatherArgs> cache_gather;
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention;
}  // namespace ref
namespace simd {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention;
}  // namespace simd
namespace cuda {
extern const Implementation<CacheWriteDesc, CacheWriteArgs> cache_write;
extern const Implementation<CacheGatherDesc, CacheGatherArgs> cache_gather;
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention;
}  // namespace cuda
namespace sm90 {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> mla_decode;
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> gqa_attention;
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention;
}  // namespace sm90

namespace {

void check_cache(std::string_view op, const PagedCache& cache, int64_t elements) {
  if (elements * int64_t(size_of(cache.dtype)) > cache.row_bytes)
    fail("[{}] {} elements of {} do not fit a cache row of {} bytes", op, elements, name_of(cache.dtype),
         cache.row_bytes);
}

void check_write(const CacheWriteArgs& a) {
  check_tensor("cache_write", "a", a.a, {-1, -1}, {DType::f32});
  check_tensor("cache_write", "b", a.b, {a.a.size(0), -1}, {DType::f32});
  check_tensor("cache_write", "slot_mapping", a.cache.slot_mapping, {a.a.size(0)}, {DType::i64});
  check_cache("cache_write", a.cache, a.a.size(1) + a.b.size(1));
}

void check_gather(const CacheGatherArgs& a) {
  check_tensor("cache_gather", "y", a.y, {-1, -1}, {a.cache.dtype});
  check_cache("cache_gather", a.cache, a.y.size(1));
}

void check_paged(const PagedAttentionArgs& a) {
  const int64_t tokens = a.rows.num_tokens;
  check_tensor("paged_attention", "q", a.q, {tokens, -1, -1}, {DType::f32});
  check_tensor("paged_attention", "y", a.y, {tokens, a.q.size(1), a.v_dim}, {DType::f32, DType::bf16});
  check_tensor("paged_attention", "block_table", a.cache.block_table, {a.rows.num_rows, -1}, {DType::i32});
  if (a.kv_heads <= 0 || a.q.size(1) % a.kv_heads != 0)
    fail("[paged_attention] {} query heads do not divide over {} key heads", a.q.size(1), a.kv_heads);
  check_cache("paged_attention", a.cache, a.k_offset + a.kv_heads * a.q.size(2));
  check_cache("paged_attention", a.cache, a.v_offset + a.kv_heads * a.v_dim);
}

void check_piece(const PieceAttentionArgs& a) {
  const int64_t queries = a.q.size(0), heads = a.q.size(1), keys = a.k_nope.size(0);
  check_tensor("piece_attention", "q", a.q, {-1, -1, a.k_nope.size(2) + a.k_rope.size(1)}, {DType::f32});
  check_tensor("piece_attention", "k_nope", a.k_nope, {keys, heads, -1}, {DType::f32, DType::bf16});
  check_tensor("piece_attention", "k_rope", a.k_rope, {keys, -1}, {a.k_nope.dtype});
  check_tensor("piece_attention", "v", a.v, {keys, heads, -1}, {a.k_nope.dtype});
  check_tensor("piece_attention", "y", a.y, {queries, heads, a.v.size(2)}, {DType::f32});
  check_tensor("piece_attention", "lse", a.lse, {queries, heads}, {DType::f32});
}

}  // namespace

std::string CacheWriteDesc::describe() const {
  return fmt::format("{} + {} elements, cache {}", a_dim, b_dim, medley::name_of(cache));
}
std::string CacheGatherDesc::describe() const {
  return fmt::format("{} elements, {}", dim, medley::name_of(cache));
}
std::string PagedAttentionDesc::describe() const {
  return fmt::format("{} heads over {}, k {} v {}, cache {}{}{}{}", heads, kv_heads, k_dim, v_dim,
                     medley::name_of(cache), window ? ", window" : "", sinks ? ", sinks" : "",
                     softcap ? ", softcap" : "");
}
std::string PieceAttentionDesc::describe() const {
  return fmt::format("{} heads, k {} + {}, v {}, {}", heads, nope_dim, rope_dim, v_dim, medley::name_of(kv));
}

const CacheWriteOp& cache_write_op() {
  static constexpr const Implementation<CacheWriteDesc, CacheWriteArgs>* table[] = {&ref::cache_write,
                                                                                    &cuda::cache_write};
  static const CacheWriteOp op{"cache_write", check_write, table};
  return op;
}

const CacheGatherOp& cache_gather_op() {
  static constexpr const Implementation<CacheGatherDesc, CacheGatherArgs>* table[] = {&ref::cache_gather,
                                                                                      &cuda::cache_gather};
  static const CacheGatherOp op{"cache_gather", check_gather, table};
  return op;
}

const PagedAttentionOp& paged_attention_op() {
  static constexpr const Implementation<PagedAttentionDesc, PagedAttentionArgs>* table[] = {
      &ref::paged_attention, &simd::paged_attention, &cuda::paged_attention, &sm90::mla_decode, &sm90::gqa_attention};
  static const PagedAttentionOp op{"paged_attention", check_paged, table};
  return op;
}

const PieceAttentionOp& piece_attention_op() {
  static constexpr const Implementation<PieceAttentionDesc, PieceAttentionArgs>* table[] = {
      &ref::piece_attention, &simd::piece_attention, &cuda::piece_attention, &sm90::piece_attention};
  static const PieceAttentionOp op{"piece_attention", check_piece, table};
  return op;
}

}  // namespace medley
