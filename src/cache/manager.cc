#include "cache/manager.h"

#include "base/error.h"
#include "cache/full_manager.h"
#include "cache/state_manager.h"
#include "cache/window_manager.h"

namespace medley {

void SingleTypeCacheManager::fill(std::span<const PlanRow>, std::span<const BlockTable* const> tables,
                                  PlanGroup& group) const {
  size_t blocks = 0;
  for (const BlockTable* table : tables) blocks += table->units.size();
  group.blocks.reserve(blocks);
  group.block_offsets.reserve(tables.size() + 1);
  group.block_offsets.push_back(0);
  for (const BlockTable* table : tables) {
    group.blocks.insert(group.blocks.end(), table->units.begin(), table->units.end());
    group.block_offsets.push_back(int32_t(group.blocks.size()));
  }
}

bool SingleTypeCacheManager::reserve(BlockTable& table, int64_t computed, int64_t tokens, int64_t* taken) {
  const int64_t missing = blocks_needed(computed, tokens) - table.held();
  *taken = missing > 0 ? missing : 0;
  return pool_.take(*taken, table.spare);
}

void SingleTypeCacheManager::give_back_spare(BlockTable& table, int64_t count) {
  MEDLEY_CHECK(count <= int64_t(table.spare.size()));
  for (; count > 0; --count) {
    pool_.give_back(table.spare.back());
    table.spare.pop_back();
  }
}

void SingleTypeCacheManager::release(BlockTable& table) {
  for (int32_t unit : table.units) {
    if (unit >= 0) pool_.give_back(unit);
  }
  for (int32_t unit : table.spare) pool_.give_back(unit);
  table = BlockTable{};
}

void SingleTypeCacheManager::use_spare(BlockTable& table, int64_t length) const {
  const int64_t count = length - int64_t(table.units.size());
  if (count <= 0) return;
  MEDLEY_CHECK(count <= int64_t(table.spare.size()));
  const auto end = table.spare.begin() + count;
  table.units.insert(table.units.end(), table.spare.begin(), end);
  table.spare.erase(table.spare.begin(), end);
}

std::unique_ptr<SingleTypeCacheManager> make_manager(const KvCacheSpec& spec, Arena& arena, int64_t max_step_tokens) {
  switch (spec.kind) {
    case CacheKind::full: return std::make_unique<FullManager>(spec, arena, max_step_tokens);
    case CacheKind::window: return std::make_unique<WindowManager>(spec, arena, max_step_tokens);
    case CacheKind::state: return std::make_unique<StateManager>(spec, arena, max_step_tokens);
  }
  fail("cache group \"{}\": unknown kind {}", spec.name, int(spec.kind));
}

}  // namespace medley
