// How a request's tokens are chosen and when it ends. Filled by the command, the server or the API's user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#define MEDLEY_API __attribute__((visibility("default")))

namespace medley {

struct MEDLEY_API SamplingParams {
  float temperature = 1.0f;                           // 0: greedy
  int32_t top_k = 0;                                  // 0: all
  float top_p = 1.0f;                                 // in (0, 1]
  float min_p = 0.0f;                                 // in [0, 1]: keeps tokens with p >= min_p * p_max
  float repetition_penalty = 1.0f;                    // > 0; over prompt and output, as in transformers
  float presence_penalty = 0.0f;                      // over the output
  float frequency_penalty = 0.0f;                     // over the output
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to these tokens' logits
  uint64_t seed = 0;
  // Texts to write for the prompt, each with random numbers of its own: sample i draws from the stream (seed, sample +
  // i), so it is the same text that a request for one sample with this number gives, in any company.
  int32_t n = 1;
  int32_t sample = 0;

  int32_t max_tokens = 128;             // 0: compute the prompt, choose no token
  std::vector<std::string> stop;        // text; may span tokens
  std::vector<int32_t> stop_token_ids;  // beside the model's own EOS ids
  bool include_stop = false;            // keep the stop string in the text
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;  // this many best tokens beside the chosen one; 0: the chosen one only

  // What is wrong ("temperature is -1, must be 0 or more"), or empty.
  std::string problem(int64_t vocab_size) const;
};

}  // namespace medley
