// For tests: byte-pair encoding as it is defined.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/merge_table.h"

namespace medley {

// Again and again, of all pairs the one with the lowest rank, of equals the leftmost.
inline std::vector<int32_t> merged_plainly(const MergeTable& merges, std::vector<int32_t> ids) {
  for (;;) {
    size_t best = 0;
    MergeTable::Merge found;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto merge = merges.find(ids[i], ids[i + 1]); merge.rank < found.rank) best = i, found = merge;
    if (found.rank == MergeTable::no_rank) return ids;
    ids[best] = found.merged;
    ids.erase(ids.begin() + ptrdiff_t(best) + 1);
  }
}

}  // namespace medley
