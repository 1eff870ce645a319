// What a person who watches gets on stderr: a progress bar while loading, one line of figures at the end. Nothing when
// stderr is not a terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "medley/engine.h"

namespace medley::cli {

class Terminal {
 public:
  explicit Terminal(bool quiet);

  bool watched() const { return watched_; }
  // For EngineOptions::progress.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress();
  void clear_progress();
  void text(const std::string& text);
  void line(const std::string& text) { this->text(text + "\n"); }

 private:
  void draw(uint64_t done_bytes, uint64_t total_bytes);

  bool watched_;
  int shown_percent_ = -1;
};

// "prompt 12 tokens, 340 tok/s; generated 60, 88.1 tok/s; first token after 0.04 s; cache 1.2 MiB of 64 MiB; on cpu"
std::string figures(const Usage& usage, const Engine& engine);

}  // namespace medley::cli
