// piece_attention: one unit is a head and up to 32 queries over all keys of the piece, in blocks counted from the
// piece's first key.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"

namespace medley {
namespace attention {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

void fill_block(const PieceAttentionArgs& a, int64_t head, int64_t query, int count, int64_t base, int64_t end,
                Block& block) {
  const int64_t element = int64_t(size_of(a.k_nope.dtype));
  const auto at = [&](const TensorView& view, int64_t key, int64_t head_stride) {
    return static_cast<const std::byte*>(view.data) + (key * view.strides[0] + head * head_stride) * element;
  };
  block.begin = 0;
  block.end = int(std::min<int64_t>(block_keys, end - base));
  for (int j = 0; j < block.end; ++j) {
    block.k[j] = at(a.k_nope, base + j, a.k_nope.strides[1]);
    block.rest[j] = at(a.k_rope, base + j, 0);
    block.v[j] = at(a.v, base + j, a.v.strides[1]);
  }
  for (int r = 0; r < count; ++r) {
    block.first[r] = 0;
    const int64_t seen = a.q_position + query + r - a.k_position + 1;
    block.last[r] = int32_t(std::clamp(seen - base, int64_t(0), int64_t(block.end)));
  }
}

// With lse' = log(exp(lse) + exp(lse_piece)) the old result is weighted by exp(lse - lse') and the piece's by
// exp(lse_piece - lse').
void finish(const PieceAttentionArgs& a, int64_t head, int64_t query, const Rows& rows) {
  for (int r = 0; r < rows.count; ++r) {
    float* y = a.y.row<float>(query + r) + head * a.y.strides[1];
    float& lse = a.lse.row<float>(query + r)[head];
    if (a.first) {
      lse = nothing;
      std::fill_n(y, rows.v_dim, 0.0f);
    }
    if (rows.highest[r] == nothing) continue;  // sees none of this piece
    const float piece = rows.highest[r] + std::log(rows.total[r]);
    const float top = std::max(lse, piece);
    const float merged = top + std::log(std::exp(lse - top) + std::exp(piece - top));
    const float old_share = std::exp(lse - merged), piece_share = std::exp(piece - merged) / rows.total[r];
    const float* sum = rows.sum + r * rows.v_stride();
    for (int64_t i = 0; i < rows.v_dim; ++i) y[i] = y[i] * old_share + sum[i] * piece_share;
    lse = merged;
  }
}

void load_queries(const PieceAttentionArgs& a, int64_t head, int64_t query, const Rows& rows) {
  for (int r = 0; r < rows.count; ++r) {
    const float* from = a.q.row<float>(query + r) + head * a.q.strides[1];
    float* q = rows.q + r * rows.q_stride();
    std::fill_n(q, rows.q_stride(), 0.0f);
    std::copy_n(from, rows.k_dim, q);
    std::copy_n(from + rows.k_dim, rows.rest_dim, q + padded(rows.k_dim));
  }
}

void attend(const PieceAttentionArgs& a, int64_t head, int64_t query, Rows& rows, BlockFunction block) {
  load_queries(a, head, query, rows);
  std::fill_n(rows.sum, rows.count * rows.v_stride(), 0.0f);
  std::fill_n(rows.highest, rows.count, nothing);
  std::fill_n(rows.total, rows.count, 0.0f);
  // Keys after the last query's position are seen by none.
  const int64_t end = std::clamp(a.q_position + query + rows.count - a.k_position, int64_t(0), a.k_nope.size(0));
  Block blocks[2];
  if (end > 0) fill_block(a, head, query, rows.count, 0, end, blocks[0]);
  int turn = 0;
  for (int64_t base = 0; base < end; base += block_keys, turn ^= 1) {
    const bool more = base + block_keys < end;
    if (more) fill_block(a, head, query, rows.count, base + block_keys, end, blocks[turn ^ 1]);
    block(rows, blocks[turn], more ? &blocks[turn ^ 1] : nullptr, 0, 0, {a.scale, 0});
  }
  finish(a, head, query, rows);
}

void run(const PieceAttentionArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t queries = a.q.size(0), heads = a.q.size(1), parts = (queries + max_rows - 1) / max_rows;
  Rows shape;
  shape.k_dim = a.k_nope.size(2);
  shape.rest_dim = a.k_rope.size(1);
  shape.v_dim = a.v.size(2);
  const int64_t floats = max_rows * (shape.q_stride() + shape.v_stride() + block_keys + 4);
  const TensorView memory = context.workspace.alloc(DType::f32, {context.threads.size(), floats});
  const BlockFunction block = simd::attention_block(a.k_nope.dtype);
  context.threads.parallel_for(heads * parts, [&](int64_t task, int worker) {
    const int64_t query = task % parts * max_rows;
    Rows rows = shape;
    rows.count = int(std::min<int64_t>(max_rows, queries - query));
    rows.q = memory.row<float>(worker);
    rows.sum = rows.q + max_rows * rows.q_stride();
    rows.scores = rows.sum + max_rows * rows.v_stride();
    rows.highest = rows.scores + max_rows * block_keys;
    rows.total = rows.highest + max_rows;
    rows.shrink = rows.total + max_rows;
    rows.fresh = rows.shrink + max_rows;
    attend(a, task / parts, query, rows, block);
  });
}

std::string supports(const PieceAttentionDesc& desc) {
  return desc.kv == DType::f32 || desc.kv == DType::bf16 ? "" : "takes keys of f32 or bf16";
}

}  // namespace
}  // namespace attention

namespace simd {
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{
    "simd.piece_attention", Level::simd, attention::supports, attention::run};
}

}  // namespace medley
