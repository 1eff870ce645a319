// The merges of a BPE model: which pairs of neighbours become one token, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace medley {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = no_rank;  // lower goes first
    int32_t merged = -1;
  };
  static constexpr uint32_t no_rank = 0xffffffffu;

  explicit MergeTable(size_t count);                   // of merges to come
  void set(int32_t left, int32_t right, Merge merge);  // a later merge of the same pair wins
  uint32_t end_rank() const { return end_rank_; }      // one past the highest

  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot].key == key) return slots_[slot].merge;
      if (slots_[slot].key == no_key) return {};
    }
  }

 private:
  static constexpr uint64_t no_key = ~uint64_t(0);
  struct Slot {
    uint64_t key = no_key;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }
  size_t slot_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15u) >> shift_; }

  uint32_t end_rank_ = 0;
  size_t mask_ = 0;
  int shift_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace medley
