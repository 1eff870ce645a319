#include "kernels/weight.h"

#include <cstring>
#include <vector>

#include "kernels/block_panel.h"

namespace medley {
namespace {

float load(const std::byte* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::f32: return reinterpret_cast<const float*>(data)[index];
    case DType::bf16: return float(reinterpret_cast<const bf16*>(data)[index]);
    case DType::f16: return float(reinterpret_cast<const f16*>(data)[index]);
    default: break;
  }
  MEDLEY_CHECK(!"a weight is f32, bf16 or f16");
  return 0;
}

// Index of element (row, column) in a panel layout.
int64_t panel_index(DType dtype, int64_t k, int64_t row, int64_t column) {
  const int64_t panel = row / panel_rows, lane = row % panel_rows;
  if (size_of(dtype) == 4) return (panel * k + column) * panel_rows + lane;
  const int64_t pairs = (k + 1) / 2;
  return ((panel * pairs + column / 2) * panel_rows + lane) * 2 + column % 2;
}

template <class T>
void pack_panel_rows(const TensorView& source, int64_t row0, const WeightView& to, T* data) {
  const auto* from = static_cast<const T*>(source.data);
  const int64_t k = to.k;
  for (int64_t r = 0; r < source.size(0); ++r) {
    const T* row = from + r * source.strides[0];
    // A row's elements lie one panel line apart; within a pair they are neighbours.
    T* out = data + panel_index(to.dtype, k, row0 + r, 0);
    if constexpr (sizeof(T) == 4) {
      for (int64_t c = 0; c < k; ++c) out[c * panel_rows] = row[c * source.strides[1]];
    } else {
      for (int64_t c = 0; c < k; ++c) out[c / 2 * 2 * panel_rows + c % 2] = row[c * source.strides[1]];
      if (k % 2 != 0) out[k / 2 * 2 * panel_rows + 1] = T{};
    }
  }
}

// Rows of blocks into panels; those behind the matrix's last row become zero with it.
void pack_block_rows(const TensorView& source, int64_t row0, const WeightView& to, std::byte* data) {
  const BlockFormat& format = format_of(to.dtype);
  const block_panel::Parts at = block_panel::parts_of(format);
  const int64_t columns = to.k / format.elements;
  MEDLEY_CHECK(source.strides[1] == 1 || source.size(1) == 0);
  const auto column_of = [&](int64_t row, int64_t column) {
    return data + (row / panel_rows * columns + column) * at.bytes;
  };
  BlockParts parts;
  for (int64_t r = 0; r < source.size(0); ++r) {
    const auto* block = static_cast<const std::byte*>(source.data) + bytes_of(to.dtype, r * source.strides[0]);
    for (int64_t c = 0; c < columns; ++c, block += block_bytes(to.dtype)) {
      read_block(to.dtype, block, parts);
      block_panel::put(format, at, parts, int((row0 + r) % panel_rows), column_of(row0 + r, c));
    }
  }
  if (row0 + source.size(0) != to.n) return;
  parts = {};
  for (int64_t row = to.n; row % panel_rows != 0; ++row)
    for (int64_t c = 0; c < columns; ++c) block_panel::put(format, at, parts, int(row % panel_rows), column_of(row, c));
}

}  // namespace

int64_t packed_bytes(WeightLayout layout, DType dtype, int64_t n, int64_t k) {
  if (is_block(dtype)) {
    if (layout == WeightLayout::row_major) return n * bytes_of(dtype, k);
    const BlockFormat& format = format_of(dtype);
    MEDLEY_CHECK(k % format.elements == 0);
    return (n + panel_rows - 1) / panel_rows * (k / format.elements) * block_panel::parts_of(format).bytes;
  }
  const int64_t element = int64_t(size_of(dtype));
  if (layout == WeightLayout::row_major) return n * k * element;
  const int64_t rows = (n + panel_rows - 1) / panel_rows * panel_rows;
  return rows * (element == 4 ? k : (k + 1) / 2 * 2) * element;
}

void pack_rows(const TensorView& source, int64_t row0, const WeightView& to, std::byte* data) {
  MEDLEY_CHECK(source.rank == 2 && source.size(1) == to.k);
  MEDLEY_CHECK(row0 >= 0 && row0 + source.size(0) <= to.n);
  if (is_block(source.dtype) && !is_block(to.dtype)) {
    std::vector<float> values(size_t(source.elements()));
    dequantize(source, values.data());
    if (to.dtype == DType::f32)
      return pack_rows(TensorView(values.data(), DType::f32, {source.size(0), source.size(1)}), row0, to, data);
    MEDLEY_CHECK(to.dtype == DType::bf16);
    std::vector<bf16> rounded(values.begin(), values.end());
    return pack_rows(TensorView(rounded.data(), DType::bf16, {source.size(0), source.size(1)}), row0, to, data);
  }
  MEDLEY_CHECK(source.dtype == to.dtype);
  if (is_block(to.dtype)) {
    if (to.layout == WeightLayout::panel) return pack_block_rows(source, row0, to, data);
    const int64_t bytes = bytes_of(to.dtype, to.k);
    MEDLEY_CHECK(source.strides[1] == 1 || to.k == 0);
    for (int64_t r = 0; r < source.size(0); ++r)
      std::memcpy(data + (row0 + r) * bytes,
                  static_cast<const std::byte*>(source.data) + bytes_of(to.dtype, r * source.strides[0]),
                  size_t(bytes));
    return;
  }
  const int64_t element = int64_t(size_of(to.dtype));
  if (to.layout == WeightLayout::panel) {
    if (row0 + source.size(0) == to.n) {  // the last rows: zero the padding of their panel
      const int64_t padded = (to.n + panel_rows - 1) / panel_rows * panel_rows;
      for (int64_t row = to.n; row < padded; ++row)
        for (int64_t c = 0; c < to.k + (element == 2 ? to.k % 2 : 0); ++c)
          std::memset(data + panel_index(to.dtype, to.k, row, c) * element, 0, size_t(element));
    }
    if (element == 4) {
      pack_panel_rows(source, row0, to, reinterpret_cast<uint32_t*>(data));
    } else {
      pack_panel_rows(source, row0, to, reinterpret_cast<uint16_t*>(data));
    }
    return;
  }
  for (int64_t r = 0; r < source.size(0); ++r) {
    std::byte* out = data + (row0 + r) * to.k * element;
    const auto* row = static_cast<const std::byte*>(source.data) + r * source.strides[0] * element;
    if (source.strides[1] == 1) {
      std::memcpy(out, row, size_t(to.k * element));
    } else {
      for (int64_t c = 0; c < to.k; ++c)
        std::memcpy(out + c * element, row + c * source.strides[1] * element, size_t(element));
    }
  }
}

void weight_block(const WeightView& weight, int64_t slot, int64_t row, int64_t block, BlockParts& parts) {
  const BlockFormat& format = format_of(weight.dtype);
  const std::byte* data = weight.data + slot * weight.slot_bytes;
  const int64_t columns = weight.k / format.elements;
  if (weight.layout == WeightLayout::row_major)
    return read_block(weight.dtype, data + (row * columns + block) * int64_t(block_bytes(weight.dtype)), parts);
  const block_panel::Parts at = block_panel::parts_of(format);
  const std::byte* column = data + (row / panel_rows * columns + block) * at.bytes;
  block_panel::get(format, at, column, int(row % panel_rows), parts);
}

void weight_row(const WeightView& weight, int64_t slot, int64_t row, float* values) {
  if (!is_block(weight.dtype)) {
    for (int64_t c = 0; c < weight.k; ++c) values[c] = weight_at(weight, slot, row, c);
    return;
  }
  const BlockFormat& format = format_of(weight.dtype);
  BlockParts parts;
  for (int64_t c = 0; c < weight.k; c += format.elements) {
    weight_block(weight, slot, row, c / format.elements, parts);
    dequantize_block(format, parts, values + c);
  }
}

float weight_at(const WeightView& weight, int64_t slot, int64_t row, int64_t column) {
  if (is_block(weight.dtype)) {
    const BlockFormat& format = format_of(weight.dtype);
    BlockParts parts;
    float values[256];
    weight_block(weight, slot, row, column / format.elements, parts);
    dequantize_block(format, parts, values);
    return values[column % format.elements];
  }
  const std::byte* data = weight.data + slot * weight.slot_bytes;
  const int64_t index = weight.layout == WeightLayout::row_major ? row * weight.k + column
                                                                 : panel_index(weight.dtype, weight.k, row, column);
  return load(data, weight.dtype, index);
}

}  // namespace medley
