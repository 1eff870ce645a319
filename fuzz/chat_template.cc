// A Jinja template: is refused, fails with a message, or renders, in bounded steps, output and depth.
#include <cstdlib>

#include "base/error.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/jinja/value.h"

using namespace medley;

namespace {

jinja::Value dict(std::initializer_list<std::pair<const char*, jinja::Value>> items) {
  jinja::Dict made;
  for (const auto& [key, value] : items) made.set(jinja::Value(std::string(key)), value);
  return jinja::make_dict(std::move(made));
}

jinja::Value text(const char* value) {
  return jinja::Value(std::string(value));
}

std::map<std::string, jinja::Value> conversation() {
  const jinja::Value call = dict({{"name", text("add")}, {"arguments", dict({{"a", jinja::Value(int64_t(1))}})}});
  return {{"messages", jinja::make_list({dict({{"role", text("system")}, {"content", text("Be <b>brief</b>.")}}),
                                         dict({{"role", text("user")}, {"content", text(" w\u00f6rld \U0001f600\n")}}),
                                         dict({{"role", text("assistant")},
                                               {"content", jinja::Value()},
                                               {"tool_calls", jinja::make_list({dict({{"function", call}})})}})})},
          {"tools", jinja::make_list({dict({{"type", text("function")}, {"function", call}})})},
          {"bos_token", text("<s>")},
          {"eos_token", text("</s>")},
          {"add_generation_prompt", jinja::Value(true)},
          {"number", jinja::Value(2.5)}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::map<std::string, jinja::Value> variables = conversation();
  // The bounds of a real run, smaller, so that an endless template costs the fuzzer little.
  const jinja::Options options{.limits = {.steps = 100'000, .output_bytes = 1u << 20, .value_bytes = 16u << 20},
                               .now = [] { return std::time_t(1'700'000'000); }};
  try {
    const jinja::Template parsed({reinterpret_cast<const char*>(data), size}, "template");
    const auto result = parsed.render(variables, options);
    if (result.ok ? result.text.size() > options.limits.output_bytes : result.error.empty()) std::abort();
  } catch (const Error&) {
    // refused
  }
  return 0;
}
