// Stop strings over text that comes in pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

// Text is held back only while it may be the beginning of a stop string; wherever the pieces are cut, the same text
// comes out. The stop string that is complete first counts; of several complete at the same place, the longest.
class StopStrings {
 public:
  // Throws Error for an empty stop string. `include_stop`: the text that comes out ends with the stop string.
  StopStrings(std::vector<std::string> stops, bool include_stop);

  struct Result {
    std::string text;      // to show now
    bool stopped = false;  // no text follows; the generation may end
    int which = -1;        // index of the stop string, if stopped
  };
  Result push(std::string_view piece);  // not after it stopped
  std::string finish();                 // what was held back, when the text ends by itself

  size_t held_bytes() const { return held_.size(); }

 private:
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // Knuth, Morris, Pratt: the longest border of each prefix
    uint32_t matched = 0;            // bytes of it that the text so far ends with
  };
  static void step(Stop& stop, char byte);

  std::vector<Stop> stops_;
  bool include_stop_;
  bool stopped_ = false;
  std::string held_;
};

}  // namespace medley
