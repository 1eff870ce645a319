#include "cache/arena.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace medley {
namespace {

// A tail of at most 1/32 needs at most 32 of the largest units in an extent; small arenas stop earlier, because every
// group that is in use holds at least one extent.
constexpr double good_tail = 0.03;
constexpr int64_t most_units = 34;
constexpr int64_t least_extents = 64;

int64_t round_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

void check_spec(const KvCacheSpec& spec) {
  const auto positive = [&](const char* field, int64_t value) {
    if (value <= 0) fail("cache group \"{}\": {} is {}, must be positive", spec.name, field, value);
  };
  positive("num_layers", spec.num_layers);
  positive("row_bytes", spec.row_bytes);
  if (spec.paged()) positive("tokens_per_block", spec.tokens_per_block);
  if (spec.kind == CacheKind::window) positive("window", spec.window);
}

// The share of an extent that the worst-off group cannot use.
double worst_tail(int64_t extent_bytes, const std::vector<int64_t>& units) {
  int64_t tail = 0;
  for (int64_t unit : units) tail = std::max(tail, extent_bytes % unit);
  return double(tail) / double(extent_bytes);
}

int64_t choose_extent(int64_t step, int64_t most, const std::vector<int64_t>& units) {
  const int64_t largest = *std::max_element(units.begin(), units.end());
  // Growing an extent only adds to the tails, until one more unit of some group fits: only those sizes can be best.
  std::vector<int64_t> candidates;
  for (int64_t unit : units) {
    for (int64_t count = (largest + unit - 1) / unit;; ++count) {
      const int64_t candidate = round_up(count * unit, step);
      if (candidate > std::max(most, round_up(largest, step))) break;
      candidates.push_back(candidate);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  int64_t best = candidates.front();
  double best_tail = 2;
  for (int64_t candidate : candidates) {
    const double tail = worst_tail(candidate, units);
    if (tail < best_tail) {
      best = candidate;
      best_tail = tail;
    }
    if (best_tail <= good_tail) break;
  }
  return best;
}

}  // namespace

int64_t granule_bytes(const KvCacheSpec& spec) {
  return spec.paged() ? spec.row_bytes : state_granule;
}

int64_t stored_unit_bytes(const KvCacheSpec& spec) {
  return round_up(spec.unit_bytes(), granule_bytes(spec));
}

ArenaGeometry plan_arena(int64_t bytes, const std::vector<KvCacheSpec>& specs) {
  if (specs.empty()) fail("the model has no cache groups");
  int64_t step = 1;
  int64_t smallest_granule = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> units;
  for (const KvCacheSpec& spec : specs) {
    check_spec(spec);
    const int64_t granule = granule_bytes(spec);
    if (granule / std::gcd(step, granule) > std::numeric_limits<int32_t>::max() / step) {
      fail("cache group \"{}\": rows of {} bytes have no common multiple below 2 GiB with the other groups' rows",
           spec.name, spec.row_bytes);
    }
    step = std::lcm(step, granule);
    smallest_granule = std::min(smallest_granule, granule);
    units.push_back(stored_unit_bytes(spec));
  }
  const int64_t largest = *std::max_element(units.begin(), units.end());
  ArenaGeometry geometry;
  geometry.extent_bytes = choose_extent(step, std::min(bytes / least_extents, most_units * largest), units);
  const int64_t extents = std::max<int64_t>(bytes, 0) / geometry.extent_bytes;
  if (extents < int64_t(specs.size())) {
    fail("a cache of {} bytes is too small: {} groups need at least one extent of {} bytes each, {} bytes in all",
         with_commas(bytes), specs.size(), with_commas(geometry.extent_bytes),
         with_commas(geometry.extent_bytes * int64_t(specs.size())));
  }
  const int64_t most = std::numeric_limits<int32_t>::max() * smallest_granule;
  if (extents * geometry.extent_bytes > most) {
    fail("a cache of {} bytes is too large: block tables number rows of {} bytes in 32 bits; at most {} bytes work",
         with_commas(bytes), smallest_granule, with_commas(most));
  }
  geometry.extents = int32_t(extents);
  return geometry;
}

Arena::Arena(const ArenaGeometry& geometry)
    : geometry_(geometry), taken_(size_t(geometry.extents), 0), free_(geometry.extents) {}

std::optional<int32_t> Arena::take() {
  if (free_ == 0) return std::nullopt;
  const void* found = std::memchr(taken_.data() + lowest_free_, 0, taken_.size() - size_t(lowest_free_));
  MEDLEY_CHECK(found != nullptr);
  const auto extent = int32_t(static_cast<const uint8_t*>(found) - taken_.data());
  taken_[extent] = 1;
  lowest_free_ = extent + 1;
  --free_;
  return extent;
}

void Arena::give_back(int32_t extent) {
  MEDLEY_CHECK(extent >= 0 && extent < geometry_.extents && taken_[extent] != 0);
  taken_[extent] = 0;
  lowest_free_ = std::min(lowest_free_, extent);
  ++free_;
}

std::string Arena::check_integrity() const {
  const auto free = std::count(taken_.begin(), taken_.end(), 0);
  if (free != free_) return fmt::format("arena: {} extents are free but {} are counted", free, free_);
  if (std::find(taken_.begin(), taken_.begin() + lowest_free_, 0) != taken_.begin() + lowest_free_) {
    return fmt::format("arena: an extent below {} is free", lowest_free_);
  }
  return {};
}

}  // namespace medley
