// What differs between kinds of cache groups: how many units a request must hold, and when one is no longer needed.
// One manager per group; the tables belong to the coordinator's requests, so a manager keeps nothing but its pool.
//
// A unit's life: free in the pool -> `spare` of a request (reserved) -> `units` (in use) -> the pool or `spare` again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/pool.h"
#include "core/kv_cache_spec.h"
#include "core/step_plan.h"

namespace medley {

// One request's units in one group.
struct BlockTable {
  std::vector<int32_t> units;  // paged: block i's row, -1 once dropped; state: one per layer
  std::vector<int32_t> spare;  // reserved and not yet used; the front is used next
  int32_t dropped = 0;         // paged: the leading entries of `units` that are -1

  int64_t held() const { return int64_t(units.size()) - dropped + int64_t(spare.size()); }
};

class SingleTypeCacheManager {
 public:
  // max_step_tokens: the most tokens of one request that a step computes.
  SingleTypeCacheManager(const KvCacheSpec& spec, Arena& arena, int64_t max_step_tokens)
      : spec_(spec), max_step_tokens_(max_step_tokens), pool_(spec, arena) {}
  virtual ~SingleTypeCacheManager() = default;

  // Units a request holds once it is reserved up to `tokens`: with them, tokens [computed, tokens) can be computed in
  // steps of at most max_step_tokens. Never grows with `computed`, never shrinks with `tokens`.
  virtual int64_t blocks_needed(int64_t computed, int64_t tokens) const = 0;

  // Extends the table to `tokens` out of the spare units. Cannot fail after a reserve.
  virtual void append(BlockTable& table, int64_t tokens) const = 0;

  // Frees units that no token from `computed` on reads and that the reservation up to `tokens` does not need.
  virtual void drop_dead(BlockTable& table, int64_t computed, int64_t tokens) = 0;

  // The largest length <= `tokens` that a request of `computed` tokens can go back to.
  virtual int64_t longest_truncation(const BlockTable& table, int64_t computed, int64_t tokens) const = 0;
  // Goes back to `tokens`, a length that longest_truncation allows.
  virtual void truncate(BlockTable& table, int64_t tokens) = 0;

  // The step's tables: one BlockTable for each row.
  virtual void fill(std::span<const PlanRow> rows, std::span<const BlockTable* const> tables, PlanGroup& group) const;

  // Takes units until the table holds blocks_needed; on failure the table is as before. Says how many it took.
  bool reserve(BlockTable& table, int64_t computed, int64_t tokens, int64_t* taken);
  void give_back_spare(BlockTable& table, int64_t count);
  void release(BlockTable& table);

  const KvCacheSpec& spec() const { return spec_; }
  const Pool& pool() const { return pool_; }

 protected:
  void use_spare(BlockTable& table, int64_t length) const;  // moves spares to `units` until it has `length` entries

  KvCacheSpec spec_;
  int64_t max_step_tokens_;
  Pool pool_;
};

// The table of kinds.
std::unique_ptr<SingleTypeCacheManager> make_manager(const KvCacheSpec& spec, Arena& arena, int64_t max_step_tokens);

}  // namespace medley
