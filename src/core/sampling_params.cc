#include "medley/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

namespace medley {

std::string SamplingParams::problem(int64_t vocab_size) const {
  // Written so that NaN fails every test.
  if (!(temperature >= 0) || std::isinf(temperature)) {
    return fmt::format("temperature is {}, must be 0 (greedy) or more", temperature);
  }
  if (top_k < 0) return fmt::format("top_k is {}, must be 0 (all tokens) or more", top_k);
  if (!(top_p > 0 && top_p <= 1)) return fmt::format("top_p is {}, must be above 0 and at most 1", top_p);
  if (!(min_p >= 0 && min_p <= 1)) return fmt::format("min_p is {}, must be between 0 and 1", min_p);
  if (!(repetition_penalty > 0) || std::isinf(repetition_penalty)) {
    return fmt::format("repetition_penalty is {}, must be above 0 (1: none)", repetition_penalty);
  }
  if (!std::isfinite(presence_penalty)) return fmt::format("presence_penalty is {}, must be finite", presence_penalty);
  if (!std::isfinite(frequency_penalty)) {
    return fmt::format("frequency_penalty is {}, must be finite", frequency_penalty);
  }
  for (const auto& [token, bias] : logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return fmt::format("logit_bias names token {}, must be between 0 and {}", token, vocab_size - 1);
    }
    if (!std::isfinite(bias)) return fmt::format("logit_bias of token {} is {}, must be finite", token, bias);
  }
  if (n < 1 || n > 1024) return fmt::format("n is {}, must be between 1 and 1024", n);
  if (sample < 0 || sample > (1 << 30)) return fmt::format("sample is {}, must be between 0 and 2^30", sample);
  if (max_tokens < 0) return fmt::format("max_tokens is {}, must be 0 or more", max_tokens);
  for (const std::string& text : stop) {
    if (text.empty()) return "stop holds an empty text, which would end every request at once";
  }
  for (const int32_t token : stop_token_ids) {
    if (token < 0 || token >= vocab_size) {
      return fmt::format("stop_token_ids names token {}, must be between 0 and {}", token, vocab_size - 1);
    }
  }
  if (logprobs && (*logprobs < 0 || *logprobs > vocab_size)) {
    return fmt::format("logprobs is {}, must be between 0 and {}", *logprobs, vocab_size);
  }
  return {};
}

}  // namespace medley
