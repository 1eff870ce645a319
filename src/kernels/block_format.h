// What the blocks of quantised weights mean. A block is 32 or 256 consecutive columns of a row. Its elements are small
// exact integers q; each group of 16 or 32 of them has a scale d and a minimum m (0 where the format has none):
//
//   value = d * q - m
//
//   format   block  group  q                          d                          m                  bits a weight
//   q4_0        32     32  code - 8                   f16                        -                  4.5
//   q4_1        32     32  code 0 ... 15              f16                        f16 (stored as -m) 5
//   q5_0        32     32  code - 16                  f16                        -                  5.5
//   q5_1        32     32  code 0 ... 31              f16                        f16 (stored as -m) 6
//   q8_0        32     32  -128 ... 127               f16                        -                  8.5
//   q2_k       256     16  code 0 ... 3               f16 * (4-bit scale)        f16 * (4-bit min)  2.625
//   q3_k       256     16  code - 4                   f16 * (6-bit scale - 32)   -                  3.4375
//   q4_k       256     32  code 0 ... 15              f16 * (6-bit scale)        f16 * (6-bit min)  4.5
//   q5_k       256     32  code 0 ... 31              f16 * (6-bit scale)        f16 * (6-bit min)  5.5
//   q6_k       256     16  code - 32                  f16 * (8-bit scale)        -                  6.5625
//   iq4_nl      32     32  16 uneven steps            f16                        -                  4.5
//   iq4_xs     256     32  16 uneven steps            f16 * (6-bit scale - 32)   -                  4.25
//   mxfp4       32     32  FP4 (E2M1) times two       2^(E8M0 byte - 128)        -                  4.25
//
// Every q is exact in bf16 (8 significant bits), so it may enter a product of either dtype of x; d and m are applied to
// a group's sum, never to an element. d * q is exact in float32 (11 + 7 + 6 bits), d * q - m rounds once.
//
// Where in a block the codes lie differs from format to format: read_block() knows. (Sources: ggml's ggml-common.h for
// the layouts, the OCP Microscaling specification for MXFP4.)
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace medley {

enum class ScaleKind : uint8_t {
  plain,     // d is the block's f16, m its other f16
  integers,  // d and m are the block's f16s times each group's small integers
  power,     // d is a power of two whose exponent is a byte
};

struct BlockFormat {
  int elements = 0;  // of a block
  int group = 0;
  int low_bits = 0, high_bits = 0;  // of a code: the low ones and those on top (which packing keeps apart)
  ScaleKind scale = ScaleKind::plain;
  bool minimum = false;
  bool nibbles = false;            // a group's integers are 4-bit: scale and minimum share a byte
  const int8_t* levels = nullptr;  // q of each code; null: the code is q itself, as int8

  int groups() const { return elements / group; }
};
const BlockFormat& format_of(DType dtype);  // of a block type

// One block taken apart.
struct BlockParts {
  uint16_t d = 0, m = 0;  // f16 bits; m with the sign that `value = d q - m` wants
  int8_t scale[16] = {};  // by group; of `power` the exponent's byte
  uint8_t minimum[16] = {};
  uint8_t codes[256] = {};
};

void read_block(DType dtype, const std::byte* block, BlockParts& parts);
float group_scale(const BlockFormat& format, const BlockParts& parts, int group);
float group_minimum(const BlockFormat& format, const BlockParts& parts, int group);
int level_of(const BlockFormat& format, uint8_t code);

// All elements, as they would be stored in float32.
void dequantize_block(const BlockFormat& format, const BlockParts& parts, float* values);
// A view of any rank and any weight dtype (f32, bf16, f16 or blocks), to contiguous floats in row-major order. The
// dimension that blocks run along need not be the last.
void dequantize(const TensorView& view, float* values);

}  // namespace medley
