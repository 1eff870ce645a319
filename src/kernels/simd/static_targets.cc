// What Highway's own library says of the processor, for binaries that do without it: Debian has it as a shared library
// only, and a statically linked medley must run where that is not installed. x86-64.
#include <hwy/targets.h>

namespace hwy {
namespace {

int64_t detect() {
  __builtin_cpu_init();
  int64_t targets = HWY_STATIC_TARGET;
  if (__builtin_cpu_supports("ssse3")) targets |= HWY_SSSE3;
  if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes"))
    targets |= HWY_SSE4;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (avx2) targets |= HWY_AVX2;
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    targets |= HWY_AVX3;
  return targets;
}

int64_t for_test = 0;

}  // namespace

int64_t SupportedTargets() {
  static const int64_t detected = detect();
  return for_test != 0 ? for_test : detected;
}

void SetSupportedTargetsForTest(int64_t targets) {
  for_test = targets;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
