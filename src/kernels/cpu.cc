#include "kernels/cpu.h"

namespace medley::cpu {

#if defined(__x86_64__)
namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

bool has_avx512_bf16() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}
bool has_avx512_vnni() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}
#else
bool has_avx512_bf16() {
  return false;
}
bool has_avx512_vnni() {
  return false;
}
#endif

std::string without_avx512_bf16() {
  return has_avx512_bf16() ? "" : "this processor lacks AVX-512 BF16";
}
std::string without_avx512_vnni() {
  return has_avx512_vnni() ? "" : "this processor lacks AVX-512 VNNI";
}

}  // namespace medley::cpu
