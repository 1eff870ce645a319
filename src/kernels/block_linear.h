// linear on panels of blocks (block_panel.h): the boundary between the driver (panel_linear.cc) and the units compiled
// once per instruction set. The driver has a few units of 32 columns unpacked into a small buffer, the integers as bf16
// pairs or as floats, with the scales of their groups; then tiles of rows of x multiply, each group's sum from zero,
// and add scale * sum - minimum * (sum of x over the group) to the outputs. What order sums have is fixed by the
// format. With x in int8 (block_int8.h) a group's sum is one of integers, and d is multiplied by x's scale first.
//
// A unit that is compiled for more than the baseline instruction set sees this header and intrinsics only (see
// panel_linear.h).
#pragma once

#include <cstdint>

namespace medley::block {

constexpr int64_t width = 64;  // outputs of a panel
constexpr int unit = 32;       // columns unpacked at a time
constexpr int max_rows = 6;    // rows of x a tile takes

// A format as the kernels see it; offsets in bytes inside a block column.
struct Format {
  int group = 0, low_bits = 0, high_bits = 0;
  bool integers = false, power = false, minimum = false, nibbles = false;
  int64_t d = 0, m = 0, scale = 0, minimum_at = 0, codes = 0, unit_bytes = 0, high = 0;
  int64_t column_bytes = 0, column_units = 0;
  // q of each code, repeated up to 64 entries (8-bit codes need no table), and the lowest of them when they are evenly
  // spaced by one.
  alignas(64) uint16_t bf16_levels[64] = {};
  alignas(64) float levels[64] = {};
  alignas(16) int8_t byte_levels[16] = {};
  bool even = true;
  int offset = 0;  // q less the unsigned byte that stands for it: levels[0] where even, else -128
};

// 32 columns of a row of x in int8, for kernels that multiply bytes.
struct Int8Unit {
  int8_t q[unit];    // of column byte_column(low_bits, i) at i
  int32_t start[2];  // by group: offset times the sum of its q
  float sums[2];     // by group: scale * the sum of its q, for minima
  float scale;
  float unused[3];  // a line of the cache in all
};
// Codes of fewer than 8 bits lie in a panel so that shifts and masks leave them as bytes in this order.
constexpr int byte_column(int low_bits, int i) {
  if (low_bits == 8) return i;
  const int each = 16 / low_bits, chunks = 8 / low_bits, chunk = i / 4, byte = i % 4;
  return chunk / chunks * 2 * each + chunk % chunks * 2 + byte / 2 + byte % 2 * each;
}

struct Unpack {
  const Format* format = nullptr;
  const void* column = nullptr;  // the block column
  int64_t index = 0;             // of the unit in it
  void* q = nullptr;             // bf16 [16 pairs of columns][64][2], f32 [32 columns][64], or u8 [8][64][4 columns]
  float* d = nullptr;            // [groups of a unit][64]
  float* m = nullptr;            // the same, with a minimum
  int64_t ahead = 0;             // memory to fetch meanwhile: as many bytes on as this
};

struct Tile {
  const void* const* x = nullptr;  // rows pointers, at the first column unpacked: bf16, f32, or Int8Unit
  const void* q = nullptr;
  const float* d = nullptr;
  const float* m = nullptr;
  const float* const* x_sums = nullptr;  // rows pointers to [groups]; with a minimum
  // x is f32 that holds q of int8: rows pointers to [units]. Else null.
  const float* const* x_scales = nullptr;
  int64_t first_group = 0;  // in x_sums
  int64_t groups = 0;
  float* sums = nullptr;  // [rows][64], 64-byte aligned: added to
};

// All of a panel for one tile of rows, codes multiplied as they are unpacked: nothing is written but the sums. Bit for
// bit what unpack and multiply make of it.
struct Direct {
  const Format* format = nullptr;
  const void* panel = nullptr;
  int64_t units = 0;                     // of all its block columns
  const void* const* x = nullptr;        // rows pointers, at k = 0
  const float* const* x_sums = nullptr;  // as in Tile
  const float* const* x_scales = nullptr;
  float* sums = nullptr;  // [rows][64]: written
  int64_t ahead = 0;      // as in Unpack
};

struct Kernels {
  void (*unpack)(const Unpack&) = nullptr;
  void (*multiply[max_rows])(const Tile&) = {};  // by rows - 1
  void (*direct[max_rows])(const Direct&) = {};
};

}  // namespace medley::block
