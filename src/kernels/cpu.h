// What this processor can run, asked once. Units compiled for more than the baseline are entered only behind these.
// (Highway's units ask for themselves.)
#pragma once

#include <string>

namespace medley::cpu {

// Every flag that units of src/kernels/avx512/ are compiled with: F, BW, VL, DQ, and BF16 or VNNI.
bool has_avx512_bf16();
bool has_avx512_vnni();

// Empty, or the reason that an implementation's supports() gives.
std::string without_avx512_bf16();
std::string without_avx512_vnni();

}  // namespace medley::cpu
