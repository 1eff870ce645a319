// Logits of every position of a prompt, and greedy continuations, through the real scheduler, caches and sampler.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine_core.h"

namespace medley::cli {

struct PromptLogits {
  int64_t tokens = 0, vocab = 0;
  std::vector<float> values;      // [tokens, vocab]
  std::vector<float> mtp_values;  // with EngineOptions::mtp: [tokens - 1, vocab], row i scores token i + 2
};

// Throws Error when the request is refused or fails.
PromptLogits prompt_logits(EngineCore& core, const std::vector<int32_t>& ids);

// The greedy tokens of each prompt, `count` of them whatever EOS says; all prompts run at the same time.
std::vector<std::vector<int32_t>> greedy_tokens(EngineCore& core, const std::vector<std::vector<int32_t>>& prompts,
                                                int32_t count);

}  // namespace medley::cli
