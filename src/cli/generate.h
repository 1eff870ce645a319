// One request from submit to its last event, with what the command needs of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "medley/engine.h"

namespace medley::cli {

struct Generated {
  std::string text;
  std::vector<int32_t> ids;
  Finish finish = Finish::none;
  Usage usage;
  bool interrupted = false;  // by Ctrl-C: what is here is what there was
};

// A request that is refused is tried again with fewer tokens to generate, down to this; what the user did not choose
// should not be in the way of a long prompt.
constexpr int32_t fewest_tokens = 16;

// Runs the request to its end; `show` gets each new event. Ctrl-C cancels it. One Generated for each of its samples.
// Throws Error when the request is refused or fails.
std::vector<Generated> generate(Engine& engine, GenerationRequest request, bool may_shrink,
                                const std::function<void(const Event&)>& show);

}  // namespace medley::cli
