#include "cli/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/text.h"

namespace medley::cli {
namespace {

void write(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? fmt::format("{:.1f} tok/s", double(tokens) / seconds) : "- tok/s";
}

}  // namespace

Terminal::Terminal(bool quiet) : watched_(!quiet && isatty(STDERR_FILENO) == 1) {}

std::function<void(uint64_t, uint64_t)> Terminal::progress() {
  if (!watched_) return {};
  return [this](uint64_t done, uint64_t total) { draw(done, total); };
}

void Terminal::draw(uint64_t done_bytes, uint64_t total_bytes) {
  // A tensor that two layers take counts twice, so there may be more done than there was.
  const int percent = int(100 * std::min(1.0, double(done_bytes) / double(std::max<uint64_t>(total_bytes, 1))));
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  const auto full = size_t(percent) * 30 / 100;
  write(fmt::format("\rloading [{:=<{}}{: <{}}] {:3}% of {}", "", full, "", 30 - full, percent,
                    human_bytes(total_bytes)));
}

void Terminal::clear_progress() {
  if (shown_percent_ >= 0) write("\r\033[K");
  shown_percent_ = -1;
}

void Terminal::text(const std::string& text) {
  if (watched_) write(text);
}

std::string figures(const Usage& usage, const Engine& engine) {
  const CacheStats cache = engine.cache();
  return fmt::format(
      "prompt {} tokens, {}; generated {}, {}; first token after {:.2f} s; cache {} of {}; on {}", usage.prompt_tokens,
      rate(usage.prompt_tokens, usage.seconds_to_first_token), usage.generated_tokens,
      rate(usage.generated_tokens - 1, usage.seconds - usage.seconds_to_first_token), usage.seconds_to_first_token,
      human_bytes(cache.peak_bytes), human_bytes(cache.capacity_bytes), engine.backend());
}

}  // namespace medley::cli
