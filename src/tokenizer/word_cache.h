// Words already encoded. Text repeats its words, and a look-up costs a tenth of the merges.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace medley {

// One slot a hash: a new word takes the place of an old one. A slot is a cache line and most words lie in it with their
// ids; the others' are in a store that drops everything when it is full.
class WordCache {
 public:
  static constexpr size_t longest_word = 128;  // bytes; longer ones seldom come back

  // The ids of `word` (hash: hash_bytes(word)), empty if it is not known. Valid until the next insert.
  std::span<const int32_t> find(std::string_view word, uint64_t hash) const {
    if (entries_.empty()) return {};
    const Entry& entry = entries_[hash & (slots - 1)];
    if (entry.hash != hash || entry.word_size != word.size()) return {};
    const int32_t* at = entry.at == in_line ? entry.line.data() : store_.data() + entry.at;
    if (std::memcmp(at, word.data(), word.size()) != 0) return {};
    return {at + ids_for(word.size()), entry.ids_size};
  }
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids);

 private:
  static constexpr size_t slots = 1 << 16;
  static constexpr size_t store_limit = 4 << 20;  // of int32_t
  static constexpr uint32_t in_line = 0xffffffffu;
  static constexpr size_t ids_for(size_t bytes) { return (bytes + 3) / 4; }  // the room of a word, in ids

  struct alignas(64) Entry {
    uint64_t hash = 0;
    uint32_t at = in_line;  // of store_
    uint16_t word_size = 0, ids_size = 0;
    std::array<int32_t, 12> line;  // the word, then its ids
  };
  std::vector<Entry> entries_;
  std::vector<int32_t> store_;
};

}  // namespace medley
