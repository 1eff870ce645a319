#include "kernels/block_panel.h"

#include <cstring>

namespace medley::block_panel {
namespace {

// Place of the words of (pair, row) among lines of `bits` < 8, and where in them the pair's bits begin.
struct Place {
  int64_t byte;
  int shift;
};
Place place_of(int bits, int pair, int row) {
  const int each = 16 / bits;
  return {(pair / each * 4 + row / 16) * 64 + row % 16 * 4, bits * (pair % each)};
}
int64_t byte_of(int column, int row) {  // of an 8-bit code
  const int pair = column / 2;
  return (pair / 2 * 4 + row / 16) * 64 + pair % 2 * 32 + row % 16 * 2 + column % 2;
}

// Bits [from, from + bits) of the unit's codes, into one plane. Loading a model spends its time here: shifts and counts
// are known to the compiler.
template <int bits>
void put_bits(const uint8_t* codes, int from, int row, std::byte* plane) {
  constexpr int each = 16 / bits;
  constexpr unsigned mask = (1u << bits) - 1;
  for (int line = 0; line < bits; ++line, codes += 2 * each) {
    unsigned even = 0, odd = 0;
    for (int p = 0; p < each; ++p) {
      even |= (unsigned(codes[2 * p]) >> from & mask) << (bits * p);
      odd |= (unsigned(codes[2 * p + 1]) >> from & mask) << (bits * p);
    }
    const uint32_t both = even | odd << 16;
    std::memcpy(plane + place_of(bits, line * each, row).byte, &both, 4);
  }
}

void put_plane(const uint8_t* codes, int from, int bits, int row, std::byte* plane) {
  switch (bits) {
    case 1: return put_bits<1>(codes, from, row, plane);
    case 2: return put_bits<2>(codes, from, row, plane);
    case 4: return put_bits<4>(codes, from, row, plane);
    case 8:
      for (int c = 0; c < unit; c += 2) std::memcpy(plane + byte_of(c, row), codes + c, 2);
      return;
    default: return;
  }
}

void get_plane(const std::byte* plane, int from, int bits, int row, uint8_t* codes) {
  const unsigned mask = (1u << bits) - 1;
  for (int c = 0; c < unit && bits > 0; ++c) {
    if (bits == 8) {
      codes[c] = uint8_t(plane[byte_of(c, row)]);
      continue;
    }
    const Place place = place_of(bits, c / 2, row);
    uint16_t word;
    std::memcpy(&word, plane + place.byte + c % 2 * 2, 2);
    codes[c] = uint8_t(codes[c] | (unsigned(word) >> place.shift & mask) << from);
  }
}

}  // namespace

Parts parts_of(const BlockFormat& format) {
  Parts at;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at.bytes;
    at.bytes += bytes;
    return begin;
  };
  const bool integers = format.scale == ScaleKind::integers, power = format.scale == ScaleKind::power;
  at.d = take(power ? 0 : 2 * rows);
  at.m = take(format.minimum ? 2 * rows : 0);
  at.scale = take(integers || power ? format.groups() * rows : 0);
  at.minimum = take(integers && format.minimum && !format.nibbles ? format.groups() * rows : 0);
  at.high = int64_t(format.low_bits) * 4 * 64;
  at.unit_bytes = int64_t(format.low_bits + format.high_bits) * 4 * 64;
  at.codes = take(format.elements / unit * at.unit_bytes);
  return at;
}

void put(const BlockFormat& format, const Parts& at, const BlockParts& block, int row, std::byte* column) {
  if (format.scale != ScaleKind::power) std::memcpy(column + at.d + 2 * row, &block.d, 2);
  if (format.minimum) std::memcpy(column + at.m + 2 * row, &block.m, 2);
  for (int g = 0; g < format.groups() && format.scale != ScaleKind::plain; ++g) {
    const uint8_t scale = uint8_t(block.scale[g]), minimum = block.minimum[g];
    column[at.scale + g * rows + row] = std::byte(format.nibbles ? scale | minimum << 4 : scale);
    if (format.minimum && !format.nibbles) column[at.minimum + g * rows + row] = std::byte(minimum);
  }
  for (int u = 0; u < format.elements / unit; ++u) {
    std::byte* codes = column + at.codes + u * at.unit_bytes;
    put_plane(block.codes + u * unit, 0, format.low_bits, row, codes);
    put_plane(block.codes + u * unit, format.low_bits, format.high_bits, row, codes + at.high);
  }
}

void get(const BlockFormat& format, const Parts& at, const std::byte* column, int row, BlockParts& block) {
  if (format.scale != ScaleKind::power) std::memcpy(&block.d, column + at.d + 2 * row, 2);
  if (format.minimum) std::memcpy(&block.m, column + at.m + 2 * row, 2);
  for (int g = 0; g < format.groups() && format.scale != ScaleKind::plain; ++g) {
    const uint8_t scale = uint8_t(column[at.scale + g * rows + row]);
    block.scale[g] = int8_t(format.nibbles ? scale & 15 : scale);
    if (format.nibbles) block.minimum[g] = scale >> 4;
    if (format.minimum && !format.nibbles) block.minimum[g] = uint8_t(column[at.minimum + g * rows + row]);
  }
  std::memset(block.codes, 0, size_t(format.elements));
  for (int u = 0; u < format.elements / unit; ++u) {
    const std::byte* codes = column + at.codes + u * at.unit_bytes;
    get_plane(codes, 0, format.low_bits, row, block.codes + u * unit);
    get_plane(codes + at.high, format.low_bits, format.high_bits, row, block.codes + u * unit);
  }
}

}  // namespace medley::block_panel
