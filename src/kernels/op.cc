#include "kernels/op.h"

namespace medley {

std::string_view name_of(Level level) {
  switch (level) {
    case Level::ref: return "ref";
    case Level::simd: return "simd";
    case Level::avx512: return "avx512";
    case Level::cuda: return "cuda";
    case Level::sm90: return "sm90";
  }
  return "?";
}

Device device_of(Level level) {
  return level < Level::cuda ? Device::cpu : Device::cuda;
}

}  // namespace medley
