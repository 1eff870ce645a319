// The last stage of encoding: ids put before and after the text's own, BOS and EOS mostly (tokenizer.json's
// "post_processor"). For a single text every processor comes down to that.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace medley {

struct PostProcessor {
  std::vector<int32_t> prefix, suffix;

  static PostProcessor make(const nlohmann::json& json, const std::string& where);
};

}  // namespace medley
