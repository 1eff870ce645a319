#include "kernels/cpu.h"

namespace medley::cpu {

bool has_avx512_bf16() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bf16");
  return has;
#else
  return false;
#endif
}

std::string without_avx512_bf16() {
  return has_avx512_bf16() ? "" : "this processor lacks AVX-512 BF16";
}

}  // namespace medley::cpu
