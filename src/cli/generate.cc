#include "cli/generate.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "cli/interrupt.h"

namespace medley::cli {

Generated generate(Engine& engine, GenerationRequest request, bool may_shrink,
                   const std::function<void(const Event&)>& show) {
  Generated result;
  std::string error;
  const auto take = [&](const Event& event) {
    result.text += event.text;
    for (const Token& token : event.tokens) result.ids.push_back(token.id);
    if (event.finish != Finish::none) {
      result.finish = event.finish;
      result.usage = event.usage;
      error = event.error;
    }
    show(event);
  };
  // The first text may be out before submit() returns, so Ctrl-C must be at home already.
  std::atomic<uint64_t> id = 0;
  const InterruptScope interrupt([&] {
    if (id != 0) engine.cancel(id);
  });
  Submitted submitted = engine.submit(request, take);
  const std::string refusal = submitted.error;
  while (!submitted && may_shrink && request.sampling.max_tokens > fewest_tokens) {
    request.sampling.max_tokens = std::max(request.sampling.max_tokens * 7 / 8, fewest_tokens);
    submitted = engine.submit(request, take);
  }
  if (!submitted) throw Error(refusal);
  id = submitted.id;
  if (interrupt.interrupted()) engine.cancel(id);
  engine.wait();
  result.interrupted = interrupt.interrupted();
  if (result.finish == Finish::error) throw Error(error);
  return result;
}

}  // namespace medley::cli
