// The arena: one allocation per device, cut into equal extents. Pools (pool.h) take extents, cut them into their own
// units and give them back when empty, so that pages and states share memory without padding one to the other.
//
// Host bookkeeping only: the runner allocates ArenaGeometry::bytes() and hands the base address to the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/kv_cache_spec.h"

namespace medley {

// Bytes that a group's row numbers count in, and what one of its units occupies (a state is rounded up to granules).
int64_t granule_bytes(const KvCacheSpec& spec);
int64_t stored_unit_bytes(const KvCacheSpec& spec);

struct ArenaGeometry {
  int64_t extent_bytes = 0;
  int32_t extents = 0;

  int64_t bytes() const { return extent_bytes * extents; }
};

// Chooses the extent: a multiple of every group's granule that holds at least one unit of each. Small extents share
// memory best, so it is the smallest whose tail (the bytes behind the last whole unit) is at most 3 % for every group;
// if none up to a bound (bytes / 64) is that good, the one with the least worst tail.
// Throws Error when a spec is malformed, when not even one extent per group fits, or when row numbers would not fit in
// an int32.
ArenaGeometry plan_arena(int64_t bytes, const std::vector<KvCacheSpec>& specs);

class Arena {
 public:
  explicit Arena(const ArenaGeometry& geometry);

  const ArenaGeometry& geometry() const { return geometry_; }
  int32_t free_extents() const { return free_; }
  bool taken(int32_t extent) const { return taken_[extent] != 0; }

  // The lowest free extent, so that memory never needed is never touched; nothing when all are taken.
  std::optional<int32_t> take();
  void give_back(int32_t extent);

  std::string check_integrity() const;  // what is wrong, or empty

 private:
  ArenaGeometry geometry_;
  std::vector<uint8_t> taken_;  // [extents]
  int32_t free_ = 0;
  int32_t lowest_free_ = 0;  // no extent below it is free
};

}  // namespace medley
