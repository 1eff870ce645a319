// Sparse attention by gathering: each query's selected cache rows side by side, then paged attention over them, every
// query a row of its own. Copying costs little beside what many heads do with a key, and the arithmetic is paged
// attention's: with every key selected, bit for bit.
#include <algorithm>
#include <cstring>

#include "kernels/attention.h"
#include "kernels/sparse_attention.h"

namespace medley {
namespace simd {

extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention;

namespace {

constexpr int64_t gathered_bytes = int64_t(32) << 20;  // of several queries at a time, unless one alone needs more

// Tokens [first, first + count) of the step, whose rows of `keys` gathered cache rows lie at `memory`.
void attend(const SparseAttentionArgs& a, const std::vector<int32_t>& row_of, int64_t first, int64_t count,
            std::byte* memory, ExecContext& context) {
  const int64_t keys = a.selected.size(1), bytes = a.cache.row_bytes;
  const TensorView offsets = context.workspace.alloc(DType::i32, {count + 1});
  const TensorView computed = context.workspace.alloc(DType::i32, {count});
  const TensorView table = context.workspace.alloc(DType::i32, {count, 1});
  context.threads.parallel_for(count, [&](int64_t t, int) {
    const int32_t* selected = a.selected.row<int32_t>(first + t);
    const int32_t* blocks = a.cache.block_table.row<int32_t>(row_of[size_t(first + t)]);
    std::byte* to = memory + t * keys * bytes;
    int32_t taken = 0;
    for (; taken < keys && selected[taken] >= 0; ++taken) {
      const int64_t at = selected[taken], place = blocks[at / a.cache.tokens_per_block] + at % a.cache.tokens_per_block;
      std::memcpy(to + taken * bytes, a.cache.base + place * bytes, size_t(bytes));
    }
    offsets.as<int32_t>()[t + 1] = int32_t(t + 1);
    computed.as<int32_t>()[t] = taken - 1;
    table.as<int32_t>()[t] = int32_t(t * keys);
  });
  offsets.as<int32_t>()[0] = 0;
  PagedAttentionArgs paged;
  paged.q = a.q.slice(0, first, count);
  paged.cache = {.base = memory,
                 .dtype = a.cache.dtype,
                 .row_bytes = bytes,
                 .tokens_per_block = int32_t(keys),
                 .block_table = table};
  paged.rows = {.row_offsets = offsets,
                .computed = computed,
                .num_rows = count,
                .num_tokens = count,
                .max_new_tokens = 1,
                .max_context = keys};
  paged.kv_heads = a.kv_heads;
  paged.v_dim = a.v_dim;
  paged.k_offset = a.k_offset;
  paged.v_offset = a.v_offset;
  paged.scale = a.scale;
  paged.y = a.y.slice(0, first, count);
  paged_attention.run(paged, context);
}

void run(const SparseAttentionArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  std::vector<int32_t> row_of;
  for (int64_t r = 0; r < a.rows.num_rows; ++r)
    row_of.resize(size_t(a.rows.row_offsets.as<int32_t>()[r + 1]), int32_t(r));
  const int64_t tokens = a.rows.num_tokens, each = a.selected.size(1) * a.cache.row_bytes;
  const int64_t batch =
      std::clamp<int64_t>(gathered_bytes / std::max<int64_t>(each, 1), 1, std::max<int64_t>(tokens, 1));
  const TensorView memory = context.workspace.alloc(DType::f32, {(batch * each + 3) / 4});
  for (int64_t first = 0; first < tokens; first += batch) {
    const Workspace::Scope step(context.workspace);
    attend(a, row_of, first, std::min(batch, tokens - first), reinterpret_cast<std::byte*>(memory.as<float>()),
           context);
  }
}

std::string supports(const SparseAttentionDesc& desc) {
  return desc.cache == DType::f32 || desc.cache == DType::bf16 ? "" : "takes caches of f32 or bf16";
}

}  // namespace

extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention{"simd.gathered_attention",
                                                                                       Level::simd, supports, run};

}  // namespace simd
}  // namespace medley
