// tokenizer_config.json and special_tokens_map.json: which tokens have a role, and whether text gets BOS and EOS.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace medley {

struct TokenizerConfig {
  // "bos_token", "eos_token", "unk_token", "pad_token", ... -> content. Those that are null are not there.
  std::map<std::string, std::string> special_tokens;
  // Given explicitly, they replace the post-processor of tokenizer.json (transformers 5 does so).
  std::optional<bool> add_bos_token, add_eos_token;
  bool legacy = false;  // of tokenizer.model: text after a special token gets a leading space, too
};

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace medley
