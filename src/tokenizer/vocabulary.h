// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

class Vocabulary {
 public:
  // Throws Error naming `where` for an id that is negative, past 2^24 or taken, and for a token that is there already.
  void add(std::string_view token, int64_t id, const std::string& where);

  void reserve(size_t count);  // tokens to come

  std::optional<int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(int32_t id) const;
  int32_t end_id() const { return int32_t(spans_.size()); }  // one past the highest id
  size_t size() const { return count_; }

 private:
  struct Span {
    uint32_t at = 0, size = 0;
    bool present = false;
  };
  std::string_view text_of(int32_t id) const {
    return {arena_.data() + spans_[size_t(id)].at, spans_[size_t(id)].size};
  }
  struct Slot {
    int32_t id = -1;   // -1 is free
    uint32_t tag = 0;  // of the hash: most other tokens are told apart without a look at their text
  };
  size_t slot_of(std::string_view token, uint64_t hash) const;
  void grow(size_t slots);

  std::string arena_;        // all tokens, end to end
  std::vector<Span> spans_;  // [id]
  std::vector<Slot> slots_;  // open addressing, a power of two long
  size_t count_ = 0;
};

}  // namespace medley
