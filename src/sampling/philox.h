// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// A number depends on (key, counter) only: no state to carry, so a draw does not depend on the batch, the rank, the
// device, or on whether the request was preempted and resumed.
#pragma once

#include <array>
#include <cstdint>

namespace medley {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t(0xD2511F53u) * counter[0];
    const uint64_t odd = uint64_t(0xCD9E8D57u) * counter[2];
    counter = {uint32_t(odd >> 32) ^ counter[1] ^ key[0], uint32_t(odd), uint32_t(even >> 32) ^ counter[3] ^ key[1],
               uint32_t(even)};
    key[0] += 0x9E3779B9u;  // the golden ratio
    key[1] += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

// A number in [0, 1), a multiple of 2^-53, for the token at `position` of a request's output. `stream` separates what
// one position may need several numbers for (0: the sampler's draw), `sample` the texts written for one prompt.
constexpr double philox_uniform(uint64_t seed, uint64_t position, uint32_t stream = 0, uint32_t sample = 0) {
  const PhiloxCounter bits = philox4x32_10({uint32_t(position), uint32_t(position >> 32), stream, sample},
                                           {uint32_t(seed), uint32_t(seed >> 32)});
  return double(((uint64_t(bits[0]) << 32) | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace medley
