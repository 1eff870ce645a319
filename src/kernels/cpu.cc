#include "kernels/cpu.h"

namespace medley::cpu {

#if defined(__x86_64__)
bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("fma");
  return has;
}

bool has_avx512_bf16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}
#else
bool has_avx512() {
  return false;
}
bool has_avx512_bf16() {
  return false;
}
#endif

std::string without_avx512() {
  return has_avx512() ? "" : "this processor lacks AVX-512 (F, BW, VL, DQ)";
}

std::string without_avx512_bf16() {
  return has_avx512_bf16() ? "" : "this processor lacks AVX-512 BF16";
}

}  // namespace medley::cpu
