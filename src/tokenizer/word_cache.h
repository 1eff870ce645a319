// Words already encoded. Text repeats its words, and a look-up costs a tenth of the merges.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace medley {

// One slot a hash: a new word takes the place of an old one. When the stored text is full everything is dropped.
class WordCache {
 public:
  static constexpr size_t longest_word = 128;  // bytes; longer ones seldom come back

  // The ids of `word` (hash: hash_bytes(word)), empty if it is not known. Valid until the next insert.
  std::span<const int32_t> find(std::string_view word, uint64_t hash) const {
    if (entries_.empty()) return {};
    const Entry& entry = entries_[hash & (slots - 1)];
    if (entry.hash != hash || entry.word_size != word.size()) return {};
    if (std::string_view(words_.data() + entry.word_at, entry.word_size) != word) return {};
    return {ids_.data() + entry.ids_at, entry.ids_size};
  }
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t slots = 1 << 16;
  static constexpr size_t text_limit = 4 << 20;  // bytes; ids never take more than four times that

  struct Entry {
    uint64_t hash = 0;
    uint32_t word_at = 0, ids_at = 0;
    uint16_t word_size = 0, ids_size = 0;
  };
  std::vector<Entry> entries_;
  std::vector<char> words_;
  std::vector<int32_t> ids_;
};

}  // namespace medley
