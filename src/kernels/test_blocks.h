// Random blocks of quantised weights for tests.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/block_format.h"

namespace medley::test {

constexpr DType block_types[] = {DType::q4_0,   DType::q4_1,   DType::q5_0, DType::q5_1, DType::q8_0,
                                 DType::q2_k,   DType::q3_k,   DType::q4_k, DType::q5_k, DType::q6_k,
                                 DType::iq4_nl, DType::iq4_xs, DType::mxfp4};

// [n, k] in blocks: random codes and small scales, elements of about the size that weights have.
inline std::vector<std::byte> random_blocks(std::mt19937& rng, DType dtype, int64_t n, int64_t k) {
  std::vector<std::byte> bytes(size_t(n * bytes_of(dtype, k)));
  for (std::byte& byte : bytes) byte = std::byte(rng());
  const auto set = [&](std::byte* at, float largest) {
    std::uniform_real_distribution<float> uniform(largest / 4, largest);
    const f16 value(uniform(rng) * (rng() % 4 == 0 ? -1 : 1));
    std::memcpy(at, &value, 2);
  };
  const float unit = 1 / std::sqrt(float(k));
  for (size_t at = 0; at < bytes.size(); at += block_bytes(dtype)) {
    std::byte* block = bytes.data() + at;
    switch (dtype) {
      case DType::q4_1:
      case DType::q5_1:
        set(block, unit / 8);
        set(block + 2, unit);
        break;
      case DType::q2_k: set(block + 80, unit / 16), set(block + 82, unit / 16); break;
      case DType::q3_k: set(block + 108, unit / 64); break;
      case DType::q4_k:
      case DType::q5_k: set(block, unit / 512), set(block + 2, unit / 64); break;
      case DType::q6_k: set(block + 208, unit / 1024); break;
      case DType::iq4_xs: set(block, unit / 1024); break;
      case DType::mxfp4: block[0] = std::byte(114 + rng() % 6); break;
      default: set(block, dtype == DType::q8_0 || dtype == DType::iq4_nl ? unit / 64 : unit / 8);
    }
  }
  return bytes;
}

}  // namespace medley::test
