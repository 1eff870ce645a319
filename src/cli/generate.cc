#include "cli/generate.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "cli/interrupt.h"

namespace medley::cli {

std::vector<Generated> generate(Engine& engine, GenerationRequest request, bool may_shrink,
                                const std::function<void(const Event&)>& show) {
  std::vector<Generated> results(size_t(request.sampling.n));
  std::string error;
  const auto take = [&](const Event& event) {
    Generated& result = results[size_t(event.sample)];
    result.text += event.text;
    for (const Token& token : event.tokens) result.ids.push_back(token.id);
    if (event.finish != Finish::none) {
      result.finish = event.finish;
      result.usage = event.usage;
      if (error.empty()) error = event.error;
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
  for (Generated& result : results) {
    result.interrupted = interrupt.interrupted();
    if (result.finish == Finish::error) throw Error(error);
  }
  return results;
}

}  // namespace medley::cli
