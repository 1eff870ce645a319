#include "cli/prompt_logits.h"

#include <algorithm>
#include <functional>

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

// Takes the rows that steps give to their places in [tokens, vocab].
class Collector {
 public:
  Collector(int64_t tokens, int64_t vocab) : vocab_(vocab), values_(size_t(tokens * vocab)), filled_(size_t(tokens)) {}

  void operator()(const StepPlan&, const StepLogits& step) {
    for (const RowLogits& row : step.rows) {
      if (row.count == 0) continue;
      MEDLEY_CHECK(row.position >= 0 && row.position + row.count <= int64_t(filled_.size()));
      const float* from = step.logits.row<float>(row.first);
      std::copy_n(from, row.count * vocab_, values_.begin() + row.position * vocab_);
      std::fill_n(filled_.begin() + row.position, row.count, uint8_t(1));
    }
  }

  std::vector<float> take() {
    MEDLEY_CHECK(std::count(filled_.begin(), filled_.end(), 1) == int64_t(filled_.size()));
    return std::move(values_);
  }

 private:
  int64_t vocab_;
  std::vector<float> values_;
  std::vector<uint8_t> filled_;
};

}  // namespace

PromptLogits prompt_logits(EngineCore& core, const std::vector<int32_t>& ids) {
  const int64_t tokens = int64_t(ids.size()), vocab = core.info().vocab_size;
  Collector logits(tokens, vocab), drafts(core.mtp() && tokens > 0 ? tokens - 1 : 0, vocab);
  Request request;
  request.id = 1;
  request.prompt = ids;
  request.logits = LogitsWanted::all;
  request.sampling.max_tokens = 0;
  add(core, std::move(request));
  finish_all(core, {.on_logits = std::ref(logits), .on_draft_logits = std::ref(drafts)});
  return {tokens, vocab, logits.take(), drafts.take()};
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
