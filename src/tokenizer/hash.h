// The hash of short byte strings, for the vocabulary and the word cache: eight bytes a step, no seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace medley {

inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
  uint64_t h = k0 ^ text.size();
  const char* at = text.data();
  size_t left = text.size();
  for (; left > 8; at += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    h = mix(h ^ word, k1);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, at, left);
  return mix(h ^ tail, k0);
}

}  // namespace medley
