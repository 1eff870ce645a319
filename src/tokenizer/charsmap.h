// The character replacements that sentencepiece compiles into its models (nmt_nfkc and its kind): a double-array trie
// from strings to strings. tokenizer.json has the same data in its "Precompiled" normalizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

class Charsmap {
 public:
  // `data`: the size of the trie in bytes (u32), its units (u32 each), then the replacements, each ended by a zero
  // byte. Throws Error naming `where` for a size that does not fit.
  Charsmap(std::string_view data, const std::string& where);

  struct Match {
    size_t bytes = 0;          // of the text; 0: nothing matches
    std::string_view becomes;  // views this object
  };
  Match longest(std::string_view text) const { return find(text, false); }
  Match shortest(std::string_view text) const { return find(text, true); }

 private:
  Match find(std::string_view text, bool first) const;
  uint32_t unit(size_t at) const { return at < units_.size() ? units_[at] : 0; }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// As the tokenizers package applies it: a grapheme of up to 5 bytes is replaced whole by what its shortest known prefix
// becomes, a longer one character by character. Sentencepiece itself takes the longest match at each position.
void apply_by_grapheme(const Charsmap& charsmap, std::string& text);

}  // namespace medley
