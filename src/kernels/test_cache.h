// A paged cache for kernel tests.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/test_tensors.h"

namespace medley::test {

// A paged cache whose blocks lie in random order, filled with random rows; rows may have spare bytes after them.
struct Cache {
  Tensor table, slots;
  std::vector<std::byte> memory;
  PagedCache view;
  int64_t elements;
  std::vector<std::vector<double>> values;  // [rows][token * elements + element]

  Cache(Rng& rng, const Rows& rows, DType dtype, int64_t elements_in, int32_t tokens_per_block, int64_t spare = 0)
      : table(DType::i32, {rows.view.num_rows,
                           std::max<int64_t>(1, (rows.view.max_context + tokens_per_block - 1) / tokens_per_block)}),
        slots(DType::i64, {rows.view.num_tokens}),
        elements(elements_in),
        values(rows.specs.size()) {
    const int64_t row_bytes = (elements + spare) * int64_t(size_of(dtype));
    std::vector<int32_t> free(size_t(table.view().elements()));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), rng);
    memory.assign(free.size() * size_t(tokens_per_block * row_bytes), std::byte{0xff});
    view = {memory.data(), dtype, row_bytes, tokens_per_block, table, slots};
    std::normal_distribution<float> normal;
    for (int64_t r = 0; r < rows.view.num_rows; ++r) {
      const int64_t length = rows.specs[size_t(r)].computed + rows.specs[size_t(r)].fresh;
      for (int64_t token = 0; token < length; ++token) {
        int32_t& block = table.view().row<int32_t>(r)[token / tokens_per_block];
        if (block < 0) {
          block = free.back() * tokens_per_block;
          free.pop_back();
        }
        const int64_t fresh = token - rows.specs[size_t(r)].computed;
        if (fresh >= 0) slots.as<int64_t>()[rows.first(r) + fresh] = block + token % tokens_per_block;
        for (int64_t i = 0; i < elements; ++i) {
          const float value = normal(rng);
          if (dtype == DType::f32) reinterpret_cast<float*>(row(r, token))[i] = value;
          if (dtype == DType::bf16) reinterpret_cast<bf16*>(row(r, token))[i] = bf16(value);
          values[size_t(r)].push_back(stored(r, token, i));
        }
      }
    }
  }
  std::byte* row(int64_t r, int64_t token) const {
    const int64_t block = table.view().row<int32_t>(r)[token / view.tokens_per_block];
    return view.base + (block + token % view.tokens_per_block) * view.row_bytes;
  }
  double at(int64_t r, int64_t token, int64_t element) const {
    return values[size_t(r)][size_t(token * elements + element)];
  }
  double stored(int64_t r, int64_t token, int64_t element) const {  // as it lies in the cache now
    if (view.dtype == DType::f32) return reinterpret_cast<const float*>(row(r, token))[element];
    return double(float(reinterpret_cast<const bf16*>(row(r, token))[element]));
  }
};

}  // namespace medley::test
