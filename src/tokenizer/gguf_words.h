// How text is cut into words before merging, by the name in a GGUF file's tokenizer.ggml.pre.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace medley {

struct GgufWords {
  bool ignore_merges = false;  // a word that is a token is not merged
  bool adds_bos = false;       // unless the file says otherwise
};
// The "pre_tokenizer" of a tokenizer.json that cuts as this name says. Throws Error with the names that are known.
nlohmann::json gguf_pre_tokenizer(const std::string& name, const std::string& where, GgufWords& words);

}  // namespace medley
