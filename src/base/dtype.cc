#include "base/dtype.h"

#include <iterator>

#include "base/error.h"

namespace medley {

namespace {

struct Facts {
  std::string_view name;
  int32_t elements, bytes;  // of a block
};

// In the order of the enumerators.
constexpr Facts facts[] = {
    {"f32", 1, 4},      {"bf16", 1, 2},     {"f16", 1, 2},        {"i32", 1, 4},      {"i64", 1, 8},
    {"u8", 1, 1},       {"q4_0", 32, 18},   {"q4_1", 32, 20},     {"q5_0", 32, 22},   {"q5_1", 32, 24},
    {"q8_0", 32, 34},   {"q2_k", 256, 84},  {"q3_k", 256, 110},   {"q4_k", 256, 144}, {"q5_k", 256, 176},
    {"q6_k", 256, 210}, {"iq4_nl", 32, 18}, {"iq4_xs", 256, 136}, {"mxfp4", 32, 17},
};
static_assert(std::size(facts) == size_t(DType::mxfp4) + 1);

const Facts& facts_of(DType dtype) {
  MEDLEY_CHECK(size_t(dtype) < std::size(facts));
  return facts[size_t(dtype)];
}

}  // namespace

size_t size_of(DType dtype) {
  MEDLEY_CHECK(!is_block(dtype));
  return size_t(facts_of(dtype).bytes);
}

std::string_view name_of(DType dtype) {
  return facts_of(dtype).name;
}

int64_t block_elements(DType dtype) {
  return facts_of(dtype).elements;
}

size_t block_bytes(DType dtype) {
  return size_t(facts_of(dtype).bytes);
}

int64_t bytes_of(DType dtype, int64_t elements) {
  const Facts& f = facts_of(dtype);
  MEDLEY_CHECK(elements % f.elements == 0);
  return elements / f.elements * f.bytes;
}

uint16_t f16::round(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x47800000u) return uint16_t(sign | 0x7c00u);  // 2^16 and above: infinity
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5f aligns the 10-bit mantissa with the float's, and the hardware rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

float f16::widen(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

}  // namespace medley
