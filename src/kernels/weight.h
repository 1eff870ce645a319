// A weight matrix as kernels read it, and the packing of a checkpoint's rows into the layout a kernel declares.
#pragma once

#include "kernels/op.h"
#include "tensor/tensor.h"

namespace medley {

// One matrix [n, k] (n output features, k input features), or `slots` of them of the same shape (experts).
struct WeightView {
  const std::byte* data = nullptr;
  DType dtype = DType::bf16;  // as stored: f32, bf16, f16 or a block type
  WeightLayout layout = WeightLayout::row_major;
  int64_t n = 0;
  int64_t k = 0;
  int64_t slots = 1;
  int64_t slot_bytes = 0;  // from one slot's matrix to the next
};

// Panels: rows are taken `panel_rows` at a time (the last panel padded with zero rows), and inside a panel the k
// dimension runs outermost, so that a kernel holds panel_rows outputs in registers and adds along k in order:
//   16-bit weights [ceil(n / 64)][ceil(k / 2)][64][2]   (pairs along k, as dot-product instructions take them)
//   f32 weights    [ceil(n / 64)][k][64]
//   block types    block_panel.h
// The order of additions of one output is then k ascending whatever the number of rows of x: rule 1 of the design.
constexpr int64_t panel_rows = 64;

int64_t packed_bytes(WeightLayout layout, DType dtype, int64_t n, int64_t k);

// Packs rows [row0, row0 + source.size(0)) of the matrix in `to` (which has n rows in all) from `source`, a 2-d view
// that may be strided (a shard of a mapped file). Merged matrices (gate over up, q over k over v) are packed part by
// part; rows nobody packs must be padding. A source of a block type may be packed into a matrix of f32 or bf16 (a
// transposed one has to be: its blocks run along n).
void pack_rows(const TensorView& source, int64_t row0, const WeightView& to, std::byte* data);

// Element (row, column) of slot `slot` as float, from any layout: for tests and for kernels' references.
float weight_at(const WeightView& weight, int64_t slot, int64_t row, int64_t column);

// Row `row` of slot `slot` as floats [k], from any layout.
void weight_row(const WeightView& weight, int64_t slot, int64_t row, float* values);
// One block of a row of a block type, from any layout.
struct BlockParts;
void weight_block(const WeightView& weight, int64_t slot, int64_t row, int64_t block, BlockParts& parts);

}  // namespace medley
