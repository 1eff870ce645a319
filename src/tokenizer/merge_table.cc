#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

namespace medley {

MergeTable::MergeTable(size_t count) {
  const size_t size = std::bit_ceil(count * 2 + 2);
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t slot = slot_of(key);
  while (slots_[slot].key != no_key && slots_[slot].key != key) slot = (slot + 1) & mask_;
  slots_[slot] = {key, merge};
  end_rank_ = std::max(end_rank_, merge.rank + 1);
}

}  // namespace medley
