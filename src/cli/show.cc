#include "cli/show.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

namespace medley::cli {
namespace {

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::none: return "none";
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::cancelled: return "cancelled";
    case Finish::error: return "error";
  }
  return "?";
}

nlohmann::ordered_json to_json(const Generated& result) {
  return {{"text", result.text},
          {"ids", result.ids},
          {"finish", name_of(result.finish)},
          {"usage",
           {{"prompt_tokens", result.usage.prompt_tokens},
            {"generated_tokens", result.usage.generated_tokens},
            {"seconds_to_first_token", result.usage.seconds_to_first_token},
            {"seconds", result.usage.seconds}}}};
}

}  // namespace

Show::Show(OutputFormat format, int32_t samples) : format_(format), samples_(size_t(samples)) {}

void Show::event(const Event& event) {
  if (format_ == OutputFormat::json) return;
  const auto index = size_t(event.sample);
  Sample& sample = samples_[index];
  std::string text;
  if (!sample.begun && samples_.size() > 1)
    text = format_ == OutputFormat::text ? fmt::format("[sample {}]\n", index) : fmt::format("{}: ", index);
  if (format_ == OutputFormat::text) {
    text += event.text;
  } else {
    for (const Token& token : event.tokens) text += fmt::format("{}{}", sample.ids++ > 0 ? "," : "", token.id);
  }
  sample.begun = true;
  if (event.finish != Finish::none) {
    sample.ended = true;
    text += "\n";
  }
  write(index, text);
}

void Show::write(size_t index, const std::string& text) {
  if (index != streaming_) {
    samples_[index].kept += text;
    return;
  }
  std::cout << text;
  while (samples_[streaming_].ended && streaming_ + 1 < samples_.size()) std::cout << samples_[++streaming_].kept;
  std::cout << std::flush;
}

void Show::json(const std::vector<Generated>& results) const {
  for (size_t i = 0; i < results.size(); ++i) {
    nlohmann::ordered_json json;
    if (results.size() > 1) json["sample"] = i;
    json.update(to_json(results[i]));
    std::cout << json.dump() << "\n";
  }
  std::cout << std::flush;
}

}  // namespace medley::cli
