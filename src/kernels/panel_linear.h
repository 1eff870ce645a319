// linear on panel weights: the boundary between the driver, which cuts the work into tasks, and the tiles, which
// multiply and are compiled once per instruction set.
//
// A unit that is compiled for more than the baseline instruction set sees this header and intrinsics only: an inline
// function of any other header, instantiated there, might be the copy that the linker keeps for everybody.
#pragma once

#include <cstdint>

namespace medley::panel {

constexpr int64_t width = 64;  // panel_rows of weight.h: outputs of a tile
constexpr int max_rows = 6;    // rows of x a tile takes: 6 x 64 sums fill 24 of AVX-512's 32 registers

// sums[r][0 ... 64) (+)= sum over k in [begin, end) of x[r][k] * panel[k], each output its own chain of additions in
// ascending k. `begin` is even. Each output is therefore the same bits for any number of rows, and for k cut anywhere.
struct Tile {
  const void* const* x = nullptr;  // rows pointers, at element 0
  const void* panel = nullptr;     // at k = 0
  int64_t begin = 0, end = 0;
  float* sums = nullptr;  // [rows][64], 64-byte aligned
  bool start = true;      // from zero, else on from what sums holds
  // While it works, a tile fetches the panel's memory `ahead` bytes on: cache lines [fetch_first, fetch_last) of every
  // 256 bytes (of two lines of bf16 pairs, of one line of floats). With few rows of x the memory is what limits.
  int64_t ahead = 0;
  int fetch_first = 0, fetch_last = 0;
};

// Tiles of one instruction set for one pair of dtypes, by rows - 1; x is f32 unless the name says otherwise.
struct Tiles {
  void (*run[max_rows])(const Tile&);
};

}  // namespace medley::panel
