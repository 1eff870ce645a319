// Kind full: every token's row stays until the request ends.
#pragma once

#include "cache/manager.h"

namespace medley {

class FullManager : public SingleTypeCacheManager {
 public:
  using SingleTypeCacheManager::SingleTypeCacheManager;

  int64_t blocks_needed(int64_t computed, int64_t tokens) const override;
  void append(BlockTable& table, int64_t tokens) const override;
  void drop_dead(BlockTable& table, int64_t computed, int64_t tokens) override;
  int64_t longest_truncation(const BlockTable& table, int64_t computed, int64_t tokens) const override;
  void truncate(BlockTable& table, int64_t tokens) override;

 protected:
  int64_t pages(int64_t tokens) const { return (tokens + spec_.tokens_per_block - 1) / spec_.tokens_per_block; }
};

}  // namespace medley
