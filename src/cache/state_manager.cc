#include "cache/state_manager.h"

namespace medley {

int64_t StateManager::blocks_needed(int64_t, int64_t tokens) const {
  return tokens > 0 ? spec_.num_layers : 0;
}

void StateManager::append(BlockTable& table, int64_t tokens) const {
  use_spare(table, blocks_needed(0, tokens));
}

void StateManager::drop_dead(BlockTable&, int64_t, int64_t) {}

// A state holds all tokens so far and cannot give one up: it stays, or starts over from zero.
int64_t StateManager::longest_truncation(const BlockTable&, int64_t computed, int64_t tokens) const {
  return tokens == computed ? tokens : 0;
}

void StateManager::truncate(BlockTable& table, int64_t tokens) {
  if (tokens == 0) release(table);
}

void StateManager::fill(std::span<const PlanRow> rows, std::span<const BlockTable* const> tables,
                        PlanGroup& group) const {
  group.state_in.reserve(size_t(spec_.num_layers) * rows.size());
  group.state_out.reserve(size_t(spec_.num_layers) * rows.size());
  for (int32_t layer = 0; layer < spec_.num_layers; ++layer) {
    for (size_t row = 0; row < rows.size(); ++row) {
      const int32_t unit = tables[row]->units[layer];
      group.state_in.push_back(rows[row].computed == 0 ? -1 : unit);
      group.state_out.push_back(unit);
    }
  }
}

}  // namespace medley
