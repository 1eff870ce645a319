// The pool of one cache group: takes extents from the arena, cuts them into the group's units (pages, or states of one
// layer) and hands those out one by one. A unit is known outside by its row number (core/kv_cache_spec.h).
//
// Which unit is free depends only on which are held, never on the order of what came before: the fullest partly used
// extent first (so that the others drain and go back), then the lowest unit. An undone reservation leaves no trace.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cache/arena.h"
#include "core/kv_cache_spec.h"

namespace medley {

class Pool {
 public:
  Pool(const KvCacheSpec& spec, Arena& arena);

  // Appends n units to `out`, or none and returns false.
  bool take(int64_t n, std::vector<int32_t>& out);
  void give_back(int32_t row);

  int64_t unit_bytes() const { return unit_bytes_; }
  int32_t units_per_extent() const { return units_per_extent_; }
  int64_t held() const { return held_count_; }
  int32_t extents() const { return extents_; }
  int64_t free_units() const { return int64_t(extents_) * units_per_extent_ - held_count_; }  // in its extents
  bool owns(int32_t extent) const { return used_[extent] > 0; }
  bool holds(int32_t row) const;

  std::string check_integrity() const;  // what is wrong, or empty

 private:
  struct Place {
    int32_t extent;
    int32_t index;
  };
  Place place(int32_t row) const;
  int32_t take_one(int32_t extent);

  std::string name_;
  Arena* arena_;
  int64_t unit_bytes_;
  int64_t granule_;
  int32_t units_per_extent_;
  std::vector<uint8_t> held_;                          // [arena extents, units_per_extent]
  std::vector<int32_t> used_;                          // [arena extents], units held; 0: the extent is not ours
  std::set<std::pair<int32_t, int32_t>> partly_used_;  // (-units held, extent): the fullest comes first
  int64_t held_count_ = 0;
  int32_t extents_ = 0;
};

}  // namespace medley
