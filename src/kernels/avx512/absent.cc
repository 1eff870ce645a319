// For processors of another family: cpu::has_avx512_bf16() is false there, so that nothing here is ever called.
#include "kernels/panel_linear.h"

namespace medley::avx512 {

extern const panel::Tiles bf16_tiles;
const panel::Tiles bf16_tiles = {};

}  // namespace medley::avx512
