#include "cache/window_manager.h"

#include <algorithm>

namespace medley {

int64_t WindowManager::first_live(int64_t computed) const {
  return std::max<int64_t>(0, computed - spec_.window + 1) / spec_.tokens_per_block;
}

int64_t WindowManager::blocks_needed(int64_t computed, int64_t tokens) const {
  // A step of n tokens touches window - 1 + n positions in a row, which lie worst when the first is a page's last. With
  // nothing to come, the page that the next token goes to may still be there: n is at least 1.
  const int64_t step = std::clamp<int64_t>(tokens - computed, 1, max_step_tokens_);
  const int64_t worst = 1 + pages(spec_.window - 1 + step - 1);
  return std::min(worst, pages(tokens) - first_live(computed));
}

void WindowManager::drop_dead(BlockTable& table, int64_t computed, int64_t tokens) {
  const int64_t live = std::min(first_live(computed), int64_t(table.units.size()));
  for (; table.dropped < live; ++table.dropped) {
    table.spare.push_back(table.units[table.dropped]);
    table.units[table.dropped] = -1;
  }
  give_back_spare(table, table.held() - blocks_needed(computed, tokens));
}

int64_t WindowManager::longest_truncation(const BlockTable& table, int64_t, int64_t tokens) const {
  return first_live(tokens) >= table.dropped ? tokens : 0;
}

}  // namespace medley
