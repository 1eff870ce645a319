// Panels of block-quantised weights: what block_linear's kernels read. Still compressed: integers of 6 bits take 8, the
// rest takes what it takes in the file (q4_k 148 bytes for the file's 144, q3_k 114 for 110, the others 0 to 2.3 %
// more).
//
// A panel is 64 rows; along k it is a chain of block columns, each the 64 blocks of 32 or 256 columns, in these parts
// (each a multiple of 64 bytes, an entry per row; those a format lacks take no room):
//
//   f16 d[64]               not of `power`
//   f16 m[64]               with a minimum
//   i8  scale[groups][64]   of `integers` (with `nibbles`, the minimum in the upper four bits), and of `power`
//   u8  minimum[groups][64] of `integers` with a minimum, but not with `nibbles`
//   codes, 32 columns (a unit) at a time: the low bits, then the high ones
//
// Codes of b < 8 bits: row r owns the two 16-bit words 2 (r % 16) and 2 (r % 16) + 1 of lines [b][4][64 bytes], 16 rows
// a line: even columns in the first word, odd ones in the second, as products of bf16 pairs take them. The 16 pairs of
// columns fill the words from the lowest bit up: pair p is b bits at b * (p % (16 / b)) of the words in line p / (16 /
// b). 8-bit codes: a line holds pairs 2l and 2l + 1, each 32 bytes in the order of the words.
#pragma once

#include "kernels/block_format.h"

namespace medley::block_panel {

constexpr int rows = 64;  // panel_rows of weight.h
constexpr int unit = 32;  // columns whose codes lie together

// Byte offsets inside a block column.
struct Parts {
  int64_t d = 0, m = 0, scale = 0, minimum = 0, codes = 0;
  int64_t unit_bytes = 0;  // codes of one unit
  int64_t high = 0;        // of the high bits inside a unit
  int64_t bytes = 0;       // of the whole block column
};
Parts parts_of(const BlockFormat& format);

// Writes row `row` (0 ... 63) of a block column; and takes it out again.
void put(const BlockFormat& format, const Parts& at, const BlockParts& block, int row, std::byte* column);
void get(const BlockFormat& format, const Parts& at, const std::byte* column, int row, BlockParts& block);

}  // namespace medley::block_panel
