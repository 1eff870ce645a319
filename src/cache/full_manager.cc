#include "cache/full_manager.h"

namespace medley {

int64_t FullManager::blocks_needed(int64_t, int64_t tokens) const {
  return pages(tokens);
}

void FullManager::append(BlockTable& table, int64_t tokens) const {
  use_spare(table, pages(tokens));
}

void FullManager::drop_dead(BlockTable&, int64_t, int64_t) {}

int64_t FullManager::longest_truncation(const BlockTable&, int64_t, int64_t tokens) const {
  return tokens;
}

void FullManager::truncate(BlockTable& table, int64_t tokens) {
  give_back_spare(table, int64_t(table.spare.size()));
  while (int64_t(table.units.size()) > pages(tokens)) {
    if (table.units.back() >= 0) {
      pool_.give_back(table.units.back());
    } else {
      --table.dropped;
    }
    table.units.pop_back();
  }
}

}  // namespace medley
