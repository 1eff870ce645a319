#include "cli/generate.h"

#include "base/error.h"
#include "cli/interrupt.h"

namespace medley::cli {

Generated generate(Engine& engine, GenerationRequest request, const std::function<void(const Event&)>& show) {
  Generated result;
  std::string error;
  const Submitted submitted = engine.submit(std::move(request), [&](const Event& event) {
    result.text += event.text;
    for (const Token& token : event.tokens) result.ids.push_back(token.id);
    if (event.finish != Finish::none) {
      result.finish = event.finish;
      result.usage = event.usage;
      error = event.error;
    }
    show(event);
  });
  if (!submitted) throw Error(submitted.error);
  {
    const InterruptScope interrupt([&] { engine.cancel(submitted.id); });
    engine.wait();
    result.interrupted = interrupt.interrupted();
  }
  if (result.finish == Finish::error) throw Error(error);
  return result;
}

}  // namespace medley::cli
