#include "cache/pool.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace medley {

Pool::Pool(const KvCacheSpec& spec, Arena& arena)
    : name_(spec.name),
      arena_(&arena),
      unit_bytes_(stored_unit_bytes(spec)),
      granule_(granule_bytes(spec)),
      units_per_extent_(int32_t(arena.geometry().extent_bytes / unit_bytes_)),
      held_(size_t(arena.geometry().extents) * size_t(units_per_extent_), 0),
      used_(size_t(arena.geometry().extents), 0) {
  MEDLEY_CHECK(units_per_extent_ > 0 && arena.geometry().extent_bytes % granule_ == 0);
}

bool Pool::take(int64_t n, std::vector<int32_t>& out) {
  if (n > free_units() + int64_t(arena_->free_extents()) * units_per_extent_) return false;
  for (int64_t i = 0; i < n; ++i) {
    if (partly_used_.empty()) {
      const std::optional<int32_t> extent = arena_->take();
      MEDLEY_CHECK(extent.has_value());
      partly_used_.insert({0, *extent});
      ++extents_;
    }
    out.push_back(take_one(partly_used_.begin()->second));
  }
  return true;
}

int32_t Pool::take_one(int32_t extent) {
  uint8_t* units = held_.data() + size_t(extent) * size_t(units_per_extent_);
  void* found = std::memchr(units, 0, size_t(units_per_extent_));
  MEDLEY_CHECK(found != nullptr);
  const int64_t index = static_cast<uint8_t*>(found) - units;
  units[index] = 1;
  ++held_count_;
  partly_used_.erase({-used_[extent], extent});
  if (++used_[extent] < units_per_extent_) partly_used_.insert({-used_[extent], extent});
  return int32_t((extent * arena_->geometry().extent_bytes + index * unit_bytes_) / granule_);
}

void Pool::give_back(int32_t row) {
  MEDLEY_CHECK(holds(row));
  const Place unit = place(row);
  held_[size_t(unit.extent) * size_t(units_per_extent_) + size_t(unit.index)] = 0;
  --held_count_;
  partly_used_.erase({-used_[unit.extent], unit.extent});
  if (--used_[unit.extent] > 0) {
    partly_used_.insert({-used_[unit.extent], unit.extent});
  } else {
    arena_->give_back(unit.extent);
    --extents_;
  }
}

Pool::Place Pool::place(int32_t row) const {
  const int64_t address = row * granule_;
  const int64_t extent_bytes = arena_->geometry().extent_bytes;
  return {int32_t(address / extent_bytes), int32_t(address % extent_bytes / unit_bytes_)};
}

bool Pool::holds(int32_t row) const {
  if (row < 0 || row * granule_ >= arena_->geometry().bytes()) return false;
  const Place unit = place(row);
  return unit.index < units_per_extent_ &&
         row * granule_ == unit.extent * arena_->geometry().extent_bytes + unit.index * unit_bytes_ &&
         held_[size_t(unit.extent) * size_t(units_per_extent_) + size_t(unit.index)] != 0;
}

std::string Pool::check_integrity() const {
  int64_t held = 0;
  int32_t extents = 0;
  size_t partly_used = 0;
  for (int32_t extent = 0; extent < arena_->geometry().extents; ++extent) {
    const uint8_t* units = held_.data() + size_t(extent) * size_t(units_per_extent_);
    const auto used = int32_t(std::count(units, units + units_per_extent_, 1));
    if (used != used_[extent]) {
      return fmt::format("pool {}: extent {} holds {} units but counts {}", name_, extent, used, used_[extent]);
    }
    if (used > 0 && !arena_->taken(extent)) return fmt::format("pool {}: extent {} is free", name_, extent);
    const bool partly = used > 0 && used < units_per_extent_;
    if (partly != (partly_used_.count({-used, extent}) == 1)) {
      return fmt::format("pool {}: extent {} with {} of {} units is listed wrongly", name_, extent, used,
                         units_per_extent_);
    }
    held += used;
    extents += used > 0 ? 1 : 0;
    partly_used += partly ? 1 : 0;
  }
  if (held != held_count_ || extents != extents_ || partly_used != partly_used_.size()) {
    return fmt::format("pool {}: {} units in {} extents, but {} in {} are counted", name_, held, extents, held_count_,
                       extents_);
  }
  return {};
}

}  // namespace medley
