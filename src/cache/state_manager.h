// Kind state: one unit per layer, whatever the length, updated in place. The first step reads the zero state (-1), so
// units are never cleared.
#pragma once

#include "cache/manager.h"

namespace medley {

class StateManager : public SingleTypeCacheManager {
 public:
  using SingleTypeCacheManager::SingleTypeCacheManager;

  int64_t blocks_needed(int64_t computed, int64_t tokens) const override;
  void append(BlockTable& table, int64_t tokens) const override;
  void drop_dead(BlockTable& table, int64_t computed, int64_t tokens) override;
  int64_t longest_truncation(const BlockTable& table, int64_t computed, int64_t tokens) const override;
  void truncate(BlockTable& table, int64_t tokens) override;
  void fill(std::span<const PlanRow> rows, std::span<const BlockTable* const> tables, PlanGroup& group) const override;
};

}  // namespace medley
