// A tokenizer from what a GGUF file says of it (the keys tokenizer.ggml.*), as plain values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace medley {

// tokenizer.ggml.token_type; normal where a file has none.
enum class GgufTokenType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

struct GgufVocabulary {
  std::string where;  // names the file in messages
  std::string
      model;        // "gpt2": byte-level BPE with merges; "llama": sentencepiece's BPE, whose merges follow from scores
  std::string pre;  // which way text is cut into words, by the name that llama.cpp gave it
  std::vector<std::string_view> tokens;
  std::vector<float> scores;  // "llama" only
  std::vector<GgufTokenType> types;
  std::vector<std::string_view> merges;  // "left right"; "gpt2" only
  std::optional<int32_t> bos, eos, unknown, padding;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

// Throws Error naming the file and what is missing or not supported.
Tokenizer make_gguf_tokenizer(const GgufVocabulary& vocabulary);

}  // namespace medley
