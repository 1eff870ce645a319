// sample: chooses a token for each row of logits on a device. What it means is the CPU's sampler
// (src/sampling/logit_processors.h), and for the same logits it chooses the same token, always: the arithmetic below is
// all there is, both sides use it, and its sums are whole numbers, so that no order of adding changes a bit.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/exec_context.h"
#include "tensor/tensor.h"

#ifdef __CUDACC__
#define MEDLEY_BOTH __host__ __device__
#else
#define MEDLEY_BOTH
#endif

namespace medley {

namespace sampling {

// float32 arithmetic that is never fused, on either side.
MEDLEY_BOTH inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
MEDLEY_BOTH inline float sum(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
MEDLEY_BOTH inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}
// exp(x) for x <= 0 to about an ulp (the polynomial of Cephes' expf); 0 below -31, where nothing is ever drawn.
MEDLEY_BOTH inline float exp_of(float x) {
  // Whole numbers instead of a branch: the host's loop over a vocabulary becomes vectors.
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t kept = int32_t(bits & 0x7fffffffu) <= std::bit_cast<int32_t>(31.0f) ? 0xffffffffu : 0;
  x = std::bit_cast<float>(bits & kept);
  constexpr float to_whole = 12582912;  // 1.5 * 2^23: adding it rounds to a whole number
  const float k = sum(sum(product(x, 1.44269504f), to_whole), -to_whole);
  const float r = sum(sum(x, product(k, -0.693359375f)), product(k, 2.12194440e-4f));
  float y = 1.9875691500e-4f;
  y = sum(product(y, r), 1.3981999507e-3f);
  y = sum(product(y, r), 8.3334519073e-3f);
  y = sum(product(y, r), 4.1665795894e-2f);
  y = sum(product(y, r), 1.6666665459e-1f);
  y = sum(product(y, r), 5.0000001201e-1f);
  y = sum(sum(product(y, product(r, r)), r), 1.0f);
  y = product(y, std::bit_cast<float>(uint32_t(int32_t(k) + 127) << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) & kept);
}

// A token's weight, in [0, 1] and 1 for the best: its share before it is normalised.
MEDLEY_BOTH inline float weight_of(float logit, float best, float temperature) {
  return exp_of(quotient(sum(logit, -best), temperature));
}

// Sums of weights count whole units of 2^-44: 2^19 tokens fit, and what a weight loses is far below its own rounding
// unless it is a millionth of the best one's.
constexpr int64_t most_tokens = int64_t(1) << 19;
MEDLEY_BOTH inline uint64_t units_of(float weight) {
  return uint64_t(int64_t(product(weight, 0x1p44f)));
}
// Top-p: a token stays if those before it weigh less than this.
MEDLEY_BOTH inline uint64_t enough_units(float top_p, uint64_t total) {
  const double share = double(top_p) * double(int64_t(total));
  const auto whole = uint64_t(share);
  return double(int64_t(whole)) < share ? whole + 1 : whole;
}
// The draw: the first token with which the sum of weights exceeds this.
MEDLEY_BOTH inline uint64_t drawn_unit(double uniform, uint64_t total) {
  const auto unit = uint64_t(uniform * double(int64_t(total)));
  return unit < total ? unit : total - 1;  // a total beyond 2^53 is rounded
}

// logit after the penalties of a token that was seen; `in_output` times in what was written.
MEDLEY_BOTH inline float penalised(float logit, int32_t in_output, float repetition, float presence, float frequency) {
  logit = logit > 0 ? quotient(logit, repetition) : product(logit, repetition);
  return in_output > 0 ? sum(logit, -sum(presence, product(float(in_output), frequency))) : logit;
}

}  // namespace sampling

// What one row asks for.
struct SampleChoice {
  int32_t logits_row = 0;
  int32_t slot = 0;  // of `last` and `counts`
  float temperature = 1;
  int32_t top_k = 0;  // 0: all
  float top_p = 1, min_p = 0;
  float repetition = 1, presence = 0, frequency = 0;
  int32_t counted = 0;                     // 1: the slot's counts apply, and the token is counted
  int32_t first_bias = 0, num_biases = 0;  // of SampleArgs::bias_*; those of one token stand together
  double uniform = 0;                      // the draw's random number
  int64_t unused = 0;                      // a whole number of 64-bit words

  // The best of the logits as they are.
  MEDLEY_BOTH bool plain() const { return temperature <= 0 && counted == 0 && num_biases == 0; }
};
static_assert(sizeof(SampleChoice) == 64);

struct SampledToken {
  int32_t token = -1;       // -1: all logits are -inf, or one is not finite
  int32_t not_finite = -1;  // the first token whose logit is NaN or +inf, after bias and penalties
  float logit = 0;          // what that token has
};

struct SampleArgs {
  TensorView logits;       // f32 [n, vocab]; not changed
  TensorView rows;         // SampleChoice [rows]: i64 [rows, 8]
  bool all_plain = false;  // all rows are SampleChoice::plain(): less to prepare
  TensorView bias_tokens;  // i32 [biases]
  TensorView bias_values;  // f32 [biases]
  TensorView counts;       // i32 [slots, vocab], by count_tokens; none: no row is counted
  TensorView last;         // i32 [slots]: gets each row's token, 0 where there is none
  TensorView chosen;       // SampledToken [rows]: i32 [rows, 3]
};

// counts[slot][token]: how often the token was written, and the highest bit when it was seen at all.
struct CountTokens {
  int32_t slot = 0;
  int32_t first = 0;   // of the tokens
  int32_t prompt = 0;  // this many are only seen,
  int32_t output = 0;  // this many more were written
};
struct CountTokensArgs {
  TensorView starts;  // CountTokens [n]: i32 [n, 4]
  TensorView tokens;  // i32 [...]
  TensorView counts;  // i32 [slots, vocab]
};

// ids[i] = last[from[i]] where from[i] is not -1: tokens that the step before has chosen.
struct TakeTokensArgs {
  TensorView ids;   // i32 [tokens]
  TensorView from;  // i32 [tokens]: slots
  TensorView last;  // i32 [slots]
};
void take_tokens(const TakeTokensArgs& args, ExecContext& exec);

namespace cuda {
void sample(const SampleArgs& args, ExecContext& exec);
void count_tokens(const CountTokensArgs& args, ExecContext& exec);
void take_tokens(const TakeTokensArgs& args, ExecContext& exec);
}  // namespace cuda

}  // namespace medley
