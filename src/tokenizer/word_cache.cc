#include "tokenizer/word_cache.h"

namespace medley {

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  if (word.size() > longest_word || ids.empty() || ids.size() > 4 * longest_word) return;
  if (entries_.empty() || words_.size() + word.size() > text_limit) {
    entries_.assign(slots, {});
    words_.clear();
    ids_.clear();
  }
  entries_[hash & (slots - 1)] = {hash, uint32_t(words_.size()), uint32_t(ids_.size()), uint16_t(word.size()),
                                  uint16_t(ids.size())};
  words_.insert(words_.end(), word.begin(), word.end());
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace medley
