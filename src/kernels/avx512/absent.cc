// For processors of another family: cpu.h says that they have none of it, so that nothing here is ever called.
#include "kernels/block_linear.h"
#include "kernels/panel_linear.h"

namespace medley::avx512 {

extern const panel::Tiles bf16_tiles;
const panel::Tiles bf16_tiles = {};

const block::Kernels* block_bf16_kernels(const block::Format& format);
const block::Kernels* block_bf16_kernels(const block::Format&) {
  return nullptr;
}

const block::Kernels* block_int8_kernels(const block::Format& format);
const block::Kernels* block_int8_kernels(const block::Format&) {
  return nullptr;
}

}  // namespace medley::avx512
