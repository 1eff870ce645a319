#include "cli/prompt_logits.h"

#include <algorithm>

#include "base/error.h"

namespace medley::cli {
namespace {

void add(EngineCore& core, Request request) {
  if (const std::optional<std::string> refusal = core.add(std::move(request))) throw Error(*refusal);
}

void finish_all(EngineCore& core, StepObserver observer) {
  observer.on_finish = [](const Request& request, const std::string& error) {
    if (request.finish_reason == FinishReason::error) throw Error(error);
  };
  while (core.has_work()) core.step(observer);
}

}  // namespace

PromptLogits prompt_logits(EngineCore& core, const std::vector<int32_t>& ids) {
  PromptLogits result{int64_t(ids.size()), core.info().vocab_size, {}};
  result.values.resize(size_t(result.tokens * result.vocab));
  std::vector<uint8_t> filled(ids.size(), 0);
  Request request;
  request.id = 1;
  request.prompt = ids;
  request.logits = LogitsWanted::all;
  request.sampling.max_tokens = 0;
  add(core, std::move(request));
  const auto keep = [&](const StepPlan&, const StepLogits& step) {
    for (const RowLogits& row : step.rows) {
      if (row.count == 0) continue;
      MEDLEY_CHECK(row.position >= 0 && row.position + row.count <= result.tokens);
      const float* from = step.logits.row<float>(row.first);
      std::copy_n(from, row.count * result.vocab, result.values.begin() + row.position * result.vocab);
      std::fill_n(filled.begin() + row.position, row.count, uint8_t(1));
    }
  };
  finish_all(core, {.on_logits = keep});
  MEDLEY_CHECK(std::count(filled.begin(), filled.end(), 1) == result.tokens);
  return result;
}

std::vector<std::vector<int32_t>> greedy_tokens(EngineCore& core, const std::vector<std::vector<int32_t>>& prompts,
                                                int32_t count) {
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request;
    request.id = i + 1;  // 0 is nobody
    request.prompt = prompts[i];
    request.sampling.temperature = 0;
    request.sampling.max_tokens = count;
    request.sampling.ignore_eos = true;
    add(core, std::move(request));
  }
  const auto keep = [&](const Sampled& sampled) {
    tokens.at(sampled.request - 1).push_back(sampled.token);
    return false;
  };
  finish_all(core, {.on_token = keep});
  return tokens;
}

}  // namespace medley::cli
