// Element types, the block types of quantised weights, and the two 16-bit floats as plain structs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace medley {

// From q4_0 on: blocks of quantised elements as GGUF stores them (src/kernels/block_format.h says what is in one).
enum class DType : uint8_t {
  f32,
  bf16,
  f16,
  i32,
  i64,
  u8,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
};

size_t size_of(DType dtype);            // bytes of one element; a block type has no such number (MEDLEY_CHECK)
std::string_view name_of(DType dtype);  // "f32", "bf16", "q4_k", ...

// Elements of consecutive columns that are stored together, and their bytes: 32 or 256 of a block type, else 1.
int64_t block_elements(DType dtype);
size_t block_bytes(DType dtype);
constexpr bool is_block(DType dtype) {
  return dtype >= DType::q4_0;
}
// Bytes of `elements` consecutive elements; whole blocks (MEDLEY_CHECK).
int64_t bytes_of(DType dtype, int64_t elements);

// bfloat16: the upper half of a float32. Conversion rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits;
  bf16() = default;
  explicit bf16(float value) : bits(round(value)) {}
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }

  static uint16_t round(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return uint16_t((u >> 16) | 0x40u);
    return uint16_t((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

// IEEE half precision, software conversion (kernels use the instruction where there is one).
struct f16 {
  uint16_t bits;
  f16() = default;
  explicit f16(float value) : bits(round(value)) {}
  explicit operator float() const { return widen(bits); }

  static uint16_t round(float value);
  static float widen(uint16_t bits);
};

}  // namespace medley
