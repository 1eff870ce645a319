// Descriptions of tensors for the bulk copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace medley::sm90 {

// Rows of bf16 that start `row_bytes` apart from `base`; a copy takes `box_columns` x `box_rows`, 128-byte swizzle.
// There are as many rows as a coordinate can name; negative rows read as zeros. Throws when base or row_bytes is not a
// multiple of 16.
CUtensorMap rows_map(const void* base, int64_t columns, int64_t row_bytes, int box_columns, int box_rows);

// The same of a matrix with so many rows: those past the end read as zeros.
CUtensorMap matrix_map(const void* base, int64_t rows, int64_t columns, int64_t row_bytes, int box_columns,
                       int box_rows);

// Experts' matrices [slots][2 * width][columns], gate over up, width a multiple of eight, as copies take them that have
// `box_rows` rows, eight of the gate and the same eight of up in turns: coordinates (column, 0, 0, row / 8, slot).
CUtensorMap gated_map(const void* base, int64_t slots, int64_t width, int64_t columns, int box_columns, int box_rows);

}  // namespace medley::sm90
