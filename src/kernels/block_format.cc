#include "kernels/block_format.h"

#include <array>
#include <bit>
#include <cstring>

namespace medley {
namespace {

template <int count>
constexpr std::array<int8_t, count> from(int first) {
  std::array<int8_t, count> levels{};
  for (int code = 0; code < count; ++code) levels[size_t(code)] = int8_t(first + code);
  return levels;
}

constexpr auto from_0 = from<32>(0);
constexpr auto from_minus_4 = from<8>(-4);
constexpr auto from_minus_8 = from<16>(-8);
constexpr auto from_minus_16 = from<32>(-16);
constexpr auto from_minus_32 = from<64>(-32);
constexpr int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t fp4_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr ScaleKind plain = ScaleKind::plain, integers = ScaleKind::integers;

// In the order of the enumerators from q4_0 on.
constexpr BlockFormat formats[] = {
    {32, 32, 4, 0, plain, false, false, from_minus_8.data()},
    {32, 32, 4, 0, plain, true, false, from_0.data()},
    {32, 32, 4, 1, plain, false, false, from_minus_16.data()},
    {32, 32, 4, 1, plain, true, false, from_0.data()},
    {32, 32, 8, 0, plain, false, false, nullptr},
    {256, 16, 2, 0, integers, true, true, from_0.data()},
    {256, 16, 2, 1, integers, false, false, from_minus_4.data()},
    {256, 32, 4, 0, integers, true, false, from_0.data()},
    {256, 32, 4, 1, integers, true, false, from_0.data()},
    {256, 16, 4, 2, integers, false, false, from_minus_32.data()},
    {32, 32, 4, 0, plain, false, false, uneven},
    {256, 32, 4, 0, integers, false, false, uneven},
    {32, 32, 4, 0, ScaleKind::power, false, false, fp4_twice},
};
static_assert(std::size(formats) == size_t(DType::mxfp4) - size_t(DType::q4_0) + 1);

using Bytes = const uint8_t*;

uint16_t half_at(Bytes bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return bits;
}

// 32 codes: the low nibbles of 16 bytes, then the high ones.
void nibbles_32(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[16 + i] = bytes[i] >> 4;
  }
}

// q5_0, q5_1: bit i of a word is on top of code i.
void high_bits_32(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= uint8_t((bytes[i / 8] >> (i % 8) & 1) << 4);
}

// q2_k, q3_k: of each half of 128 codes, two bits of 32 bytes at a time.
void pairs_of_bits(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

// q4_k, q5_k: of each 64 codes, the low and then the high nibbles of 32 bytes.
void nibbles_64(Bytes bytes, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

// q4_k, q5_k: eight 6-bit scales and eight 6-bit minima in 12 bytes. The first four of each fill the low six bits of
// bytes 0-3 and 4-7; the others have their low four bits in bytes 8-11 and their upper two on top of the first eight.
void scales_6(Bytes bytes, BlockParts& parts) {
  for (int i = 0; i < 4; ++i) {
    parts.scale[i] = int8_t(bytes[i] & 63);
    parts.minimum[i] = bytes[4 + i] & 63;
    parts.scale[4 + i] = int8_t((bytes[8 + i] & 15) | (bytes[i] >> 6) << 4);
    parts.minimum[4 + i] = uint8_t((bytes[8 + i] >> 4) | (bytes[4 + i] >> 6) << 4);
  }
}

// q3_k: sixteen 6-bit scales in 12 bytes: low nibbles in the nibbles of the first 8, upper two bits in the last 4.
void scales_6_signed(Bytes bytes, BlockParts& parts) {
  for (int i = 0; i < 16; ++i) {
    const int low = bytes[i % 8] >> (i / 8 * 4) & 15, high = bytes[8 + i % 4] >> (i / 4 * 2) & 3;
    parts.scale[i] = int8_t((low | high << 4) - 32);
  }
}

void read_q2_k(Bytes b, BlockParts& p) {
  for (int i = 0; i < 16; ++i) {
    p.scale[i] = int8_t(b[i] & 15);
    p.minimum[i] = b[i] >> 4;
  }
  pairs_of_bits(b + 16, p.codes);
  p.d = half_at(b + 80);
  p.m = half_at(b + 82);
}

void read_q3_k(Bytes b, BlockParts& p) {
  pairs_of_bits(b + 32, p.codes);
  for (int i = 0; i < 256; ++i) p.codes[i] |= uint8_t((b[i % 32] >> (i / 32) & 1) << 2);
  scales_6_signed(b + 96, p);
  p.d = half_at(b + 108);
}

void read_q6_k(Bytes b, BlockParts& p) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, rest = i % 128;
    const int low = b[half * 64 + rest % 64] >> (rest / 64 * 4) & 15;
    const int high = b[128 + half * 32 + rest % 32] >> (rest / 32 * 2) & 3;
    p.codes[i] = uint8_t(low | high << 4);
  }
  std::memcpy(p.scale, b + 192, 16);
  p.d = half_at(b + 208);
}

void read_iq4_xs(Bytes b, BlockParts& p) {
  const int high = half_at(b + 2);
  for (int i = 0; i < 8; ++i) {
    p.scale[i] = int8_t(((b[4 + i / 2] >> (i % 2 * 4) & 15) | (high >> (2 * i) & 3) << 4) - 32);
    nibbles_32(b + 8 + 16 * i, p.codes + 32 * i);
  }
}

}  // namespace

const BlockFormat& format_of(DType dtype) {
  MEDLEY_CHECK(is_block(dtype));
  return formats[size_t(dtype) - size_t(DType::q4_0)];
}

void read_block(DType dtype, const std::byte* block, BlockParts& p) {
  const Bytes b = reinterpret_cast<Bytes>(block);
  p.d = half_at(b);
  switch (dtype) {
    case DType::q4_0:
    case DType::iq4_nl: return nibbles_32(b + 2, p.codes);
    case DType::q4_1: p.m = half_at(b + 2) ^ 0x8000; return nibbles_32(b + 4, p.codes);
    case DType::q5_0: nibbles_32(b + 6, p.codes); return high_bits_32(b + 2, p.codes);
    case DType::q5_1:
      p.m = half_at(b + 2) ^ 0x8000;
      nibbles_32(b + 8, p.codes);
      return high_bits_32(b + 4, p.codes);
    case DType::q8_0: std::memcpy(p.codes, b + 2, 32); return;
    case DType::q2_k: return read_q2_k(b, p);
    case DType::q3_k: return read_q3_k(b, p);
    case DType::q4_k:
      p.m = half_at(b + 2);
      scales_6(b + 4, p);
      return nibbles_64(b + 16, p.codes);
    case DType::q5_k:
      p.m = half_at(b + 2);
      scales_6(b + 4, p);
      nibbles_64(b + 48, p.codes);
      for (int i = 0; i < 256; ++i) p.codes[i] |= uint8_t((b[16 + i % 32] >> (i / 32) & 1) << 4);
      return;
    case DType::q6_k: return read_q6_k(b, p);
    case DType::iq4_xs: return read_iq4_xs(b, p);
    case DType::mxfp4:
      p.d = 0;
      p.scale[0] = int8_t(b[0]);
      return nibbles_32(b + 1, p.codes);
    default: MEDLEY_CHECK(!"a block type");
  }
}

float group_scale(const BlockFormat& format, const BlockParts& parts, int group) {
  if (format.scale == ScaleKind::plain) return f16::widen(parts.d);
  if (format.scale == ScaleKind::integers) return f16::widen(parts.d) * float(parts.scale[group]);
  const uint32_t exponent = uint8_t(parts.scale[0]);  // 2^(exponent - 128): subnormal for 0 and 1
  return std::bit_cast<float>(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
}

float group_minimum(const BlockFormat& format, const BlockParts& parts, int group) {
  if (!format.minimum) return 0;
  const float m = f16::widen(parts.m);
  return format.scale == ScaleKind::integers ? m * float(parts.minimum[group]) : m;
}

int level_of(const BlockFormat& format, uint8_t code) {
  return format.levels != nullptr ? format.levels[code] : int8_t(code);
}

void dequantize_block(const BlockFormat& format, const BlockParts& parts, float* values) {
  for (int g = 0; g < format.groups(); ++g) {
    const float d = group_scale(format, parts, g), m = group_minimum(format, parts, g);
    for (int i = g * format.group; i < (g + 1) * format.group; ++i) {
      const float scaled = d * float(level_of(format, parts.codes[i]));
      values[i] = format.minimum ? scaled - m : scaled;  // 0 - 0 would lose the sign of a zero
    }
  }
}

namespace {

float element(const TensorView& view, int64_t offset) {
  switch (view.dtype) {
    case DType::f32: return view.as<float>()[offset];
    case DType::bf16: return float(view.as<bf16>()[offset]);
    case DType::f16: return float(view.as<f16>()[offset]);
    default: MEDLEY_CHECK(!"a weight is f32, bf16, f16 or blocks");
  }
  return 0;
}

// Calls f(index of the first element in row-major order, offset) for every line along `along`.
template <class F>
void for_each_line(const TensorView& view, int along, F&& f) {
  std::array<int64_t, max_rank> index{};
  const int64_t lines = view.size(along) == 0 ? 0 : view.elements() / view.size(along);
  for (int64_t line = 0; line < lines; ++line) {
    int64_t offset = 0, at = 0;
    for (int d = 0; d < view.rank; ++d) {
      offset += index[size_t(d)] * view.strides[size_t(d)];
      at = at * view.size(d) + index[size_t(d)];
    }
    f(at, offset);
    for (int d = view.rank - 1; d >= 0; --d) {
      if (d == along) continue;
      if (++index[size_t(d)] < view.size(d)) break;
      index[size_t(d)] = 0;
    }
  }
}

}  // namespace

void dequantize(const TensorView& view, float* values) {
  MEDLEY_CHECK(view.rank > 0);
  int along = view.rank - 1;
  if (is_block(view.dtype))
    for (int d = 0; d < view.rank; ++d)
      if (view.strides[size_t(d)] == 1 && view.size(d) > 1) along = d;
  int64_t step = 1;  // between neighbours of the line, in the output
  for (int d = along + 1; d < view.rank; ++d) step *= view.size(d);
  const int64_t length = view.size(along);
  if (!is_block(view.dtype)) {
    for_each_line(view, along, [&](int64_t at, int64_t offset) {
      for (int64_t i = 0; i < length; ++i)
        values[at + i * step] = element(view, offset + i * view.strides[size_t(along)]);
    });
    return;
  }
  const BlockFormat& format = format_of(view.dtype);
  for_each_line(view, along, [&](int64_t at, int64_t offset) {
    const auto* block = static_cast<const std::byte*>(view.data) + bytes_of(view.dtype, offset);
    for (int64_t first = 0; first < length; first += format.elements, block += block_bytes(view.dtype)) {
      BlockParts parts;
      float part[256];
      read_block(view.dtype, block, parts);
      dequantize_block(format, parts, part);
      for (int i = 0; i < format.elements; ++i) values[at + (first + i) * step] = part[i];
    }
  });
}

}  // namespace medley
