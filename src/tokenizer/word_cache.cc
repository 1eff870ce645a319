#include "tokenizer/word_cache.h"

#include <algorithm>

namespace medley {

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  if (word.size() > longest_word || ids.empty() || ids.size() > 4 * longest_word) return;
  const size_t room = ids_for(word.size()) + ids.size();
  const bool fits = room <= Entry{}.line.size();
  if (entries_.empty() || (!fits && store_.size() + room > store_limit)) {
    entries_.assign(slots, {});
    store_.clear();
  }
  Entry& entry = entries_[hash & (slots - 1)];
  entry.hash = hash;
  entry.word_size = uint16_t(word.size());
  entry.ids_size = uint16_t(ids.size());
  entry.at = in_line;
  int32_t* at = entry.line.data();
  if (!fits) {
    entry.at = uint32_t(store_.size());
    store_.resize(store_.size() + room);
    at = store_.data() + entry.at;
  }
  std::memcpy(at, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), at + ids_for(word.size()));
}

}  // namespace medley
