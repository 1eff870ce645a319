#include "tokenizer/stop_strings.h"

#include <algorithm>

#include "base/error.h"

namespace medley {

StopStrings::StopStrings(std::vector<std::string> stops, bool include_stop) : include_stop_(include_stop) {
  for (std::string& text : stops) {
    if (text.empty()) fail("a stop string is empty: it would stop every generation at once");
    Stop stop{std::move(text), {}, 0};
    stop.fallback.assign(stop.text.size() + 1, 0);
    for (size_t i = 1; i < stop.text.size(); ++i) {
      uint32_t border = stop.fallback[i];
      while (border > 0 && stop.text[border] != stop.text[i]) border = stop.fallback[border];
      stop.fallback[i + 1] = stop.text[border] == stop.text[i] ? border + 1 : 0;
    }
    stops_.push_back(std::move(stop));
  }
}

void StopStrings::step(Stop& stop, char byte) {
  while (stop.matched > 0 && stop.text[stop.matched] != byte) stop.matched = stop.fallback[stop.matched];
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

StopStrings::Result StopStrings::push(std::string_view piece) {
  MEDLEY_CHECK(!stopped_);
  Result result;
  if (stops_.empty()) {
    result.text = piece;
    return result;
  }
  for (const char byte : piece) {
    held_ += byte;
    size_t longest = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      step(stop, byte);
      if (stop.matched == stop.text.size() && stop.text.size() > longest) {
        longest = stop.text.size();
        result.which = int(i);
      }
    }
    if (longest == 0) continue;
    result.stopped = stopped_ = true;
    // held_ never lost a byte of a stop string that could still be completed.
    if (!include_stop_) held_.resize(held_.size() - longest);
    result.text = std::exchange(held_, {});
    return result;
  }
  size_t keep = 0;
  for (const Stop& stop : stops_) keep = std::max<size_t>(keep, stop.matched);
  result.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return result;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace medley
