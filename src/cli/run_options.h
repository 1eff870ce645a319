// The options of medley run: parsed, checked together, and turned into what the engine takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "medley/engine.h"

namespace CLI {
class App;
}

namespace medley::cli {

enum class OutputFormat : uint8_t { text, ids, json };

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;  // "-": stdin
  std::vector<int32_t> ids;
  std::string system;
  bool chat = false, interactive = false;
  OutputFormat format = OutputFormat::text;
  bool quiet = false;
  EngineOptions engine;

  // Sampling: what is not given comes from the model's generation_config.json.
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  uint64_t seed = 0;
  int32_t samples = 1;
  std::optional<int32_t> max_tokens;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  SamplingParams sampling(SamplingParams defaults) const;
  // Throws UsageError for what does not go together, and for values out of range.
  void check() const;
};

void add_run_options(CLI::App& command, RunOptions& options);

}  // namespace medley::cli
