// What medley run writes to stdout: the text or the ids as they come, JSON when they are complete.
#pragma once

#include <string>
#include <vector>

#include "cli/generate.h"
#include "cli/run_options.h"

namespace medley::cli {

// Of several samples one streams at a time, in order, and what others have meanwhile is kept; each is labelled:
// "[sample 0]" on a line before its text, "0: " before its ids, "sample" in its JSON object.
class Show {
 public:
  Show(OutputFormat format, int32_t samples);

  void event(const Event& event);                          // text and ids stream; the last one ends the line
  void json(const std::vector<Generated>& results) const;  // one object a line

 private:
  struct Sample {
    std::string kept;
    int64_t ids = 0;  // written
    bool begun = false, ended = false;
  };
  void write(size_t sample, const std::string& text);

  OutputFormat format_;
  std::vector<Sample> samples_;
  size_t streaming_ = 0;
};

}  // namespace medley::cli
