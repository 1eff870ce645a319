#include "cache/coordinator.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace medley {
namespace {

int64_t extents_for(const SingleTypeCacheManager& group, int64_t tokens, int64_t requests = 1) {
  const int64_t units = group.blocks_needed(0, tokens) * requests;
  return (units + group.pool().units_per_extent() - 1) / group.pool().units_per_extent();
}

}  // namespace

KvCacheCoordinator::KvCacheCoordinator(const std::vector<KvCacheSpec>& specs, Arena& arena, int64_t max_step_tokens)
    : arena_(&arena), max_step_tokens_(max_step_tokens) {
  MEDLEY_CHECK(max_step_tokens > 0);
  for (const KvCacheSpec& spec : specs) groups_.push_back(make_manager(spec, arena, max_step_tokens));
}

// A pool takes an extent only when its others are full, so alone in the arena a request never needs more than this.
int64_t KvCacheCoordinator::extents_needed(int64_t tokens, int64_t requests) const {
  int64_t extents = 0;
  for (const auto& group : groups_) extents += extents_for(*group, tokens, requests);
  return extents;
}

int64_t KvCacheCoordinator::most_requests(int64_t tokens) const {
  MEDLEY_CHECK(tokens > 0);
  int64_t requests = 0;
  // Every request holds a unit at least, so there is an end. From the largest step down, as in a binary number.
  for (int64_t step = int64_t(1) << 30; step > 0; step /= 2) {
    if (extents_needed(tokens, requests + step) <= arena_->geometry().extents) requests += step;
  }
  return requests;
}

CacheFit KvCacheCoordinator::can_ever_fit(int64_t tokens) const {
  CacheFit fit{tokens, extents_needed(tokens), arena_->geometry().extents};
  if (fit.fits()) return fit;
  int64_t too_many = tokens;
  while (too_many - fit.most_tokens > 1) {
    const int64_t middle = fit.most_tokens + (too_many - fit.most_tokens) / 2;
    (extents_needed(middle) <= fit.extents_total ? fit.most_tokens : too_many) = middle;
  }
  std::vector<std::string> parts;
  parts.reserve(groups_.size());
  for (const auto& group : groups_) {
    parts.push_back(fmt::format("{} {}", group->spec().name, with_commas(extents_for(*group, tokens))));
  }
  fit.message = fmt::format("{} tokens need {} extents of {} ({}) but the cache has {}: at most {} tokens fit",
                            with_commas(tokens), with_commas(fit.extents_needed),
                            human_bytes(uint64_t(arena_->geometry().extent_bytes)), join(parts, ", "),
                            with_commas(fit.extents_total), with_commas(fit.most_tokens));
  return fit;
}

bool KvCacheCoordinator::reserve(RequestId request, int64_t tokens) {
  const auto [found, is_new] = requests_.try_emplace(request);
  Holding& holding = found->second;
  if (is_new) holding.tables.resize(groups_.size());
  if (tokens <= holding.reserved) return true;
  std::vector<int64_t> taken(groups_.size(), 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g]->reserve(holding.tables[g], holding.computed, tokens, &taken[g])) continue;
    while (g-- > 0) groups_[g]->give_back_spare(holding.tables[g], taken[g]);
    if (is_new) requests_.erase(found);
    return false;
  }
  holding.reserved = tokens;
  return true;
}

void KvCacheCoordinator::fill(StepPlan& plan) {
  plan.groups.assign(groups_.size(), {});
  std::vector<const BlockTable*> tables(plan.rows.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const PlanRow& row = plan.rows[r];
      Holding& holding = requests_.at(row.request);
      MEDLEY_CHECK(row.computed == holding.computed && row.computed + row.new_tokens <= holding.reserved);
      MEDLEY_CHECK(row.new_tokens > 0 && row.new_tokens <= max_step_tokens_);
      groups_[g]->append(holding.tables[g], row.computed + row.new_tokens);
      tables[r] = &holding.tables[g];
    }
    groups_[g]->fill(plan.rows, tables, plan.groups[g]);
  }
}

void KvCacheCoordinator::commit(RequestId request, int64_t computed) {
  Holding& holding = requests_.at(request);
  MEDLEY_CHECK(computed >= holding.computed && computed <= holding.reserved);
  holding.computed = computed;
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g]->drop_dead(holding.tables[g], holding.computed, holding.reserved);
  }
}

int64_t KvCacheCoordinator::truncate(RequestId request, int64_t tokens) {
  Holding& holding = requests_.at(request);
  MEDLEY_CHECK(tokens >= 0 && tokens <= holding.computed);
  // Every group's answer is `tokens` or 0, and all can go back to 0.
  for (size_t g = 0; g < groups_.size(); ++g) {
    tokens = groups_[g]->longest_truncation(holding.tables[g], holding.computed, tokens);
  }
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g]->truncate(holding.tables[g], tokens);
  holding.computed = holding.reserved = tokens;
  return tokens;
}

void KvCacheCoordinator::release(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return;
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g]->release(found->second.tables[g]);
  requests_.erase(found);
}

int64_t KvCacheCoordinator::reserved(RequestId request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? 0 : found->second.reserved;
}

int64_t KvCacheCoordinator::largest_block() const {
  int64_t tokens = 1;
  for (const auto& group : groups_) tokens = std::max<int64_t>(tokens, group->spec().tokens_per_block);
  return tokens;
}

CacheUsage KvCacheCoordinator::usage() const {
  CacheUsage usage;
  usage.capacity_bytes = arena_->geometry().bytes();
  usage.free_bytes = arena_->free_extents() * arena_->geometry().extent_bytes;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Pool& pool = groups_[g]->pool();
    GroupUsage group{groups_[g]->spec().name, pool.unit_bytes()};
    for (const auto& [request, holding] : requests_) group.units_reserved += int64_t(holding.tables[g].spare.size());
    group.units_in_use = pool.held() - group.units_reserved;
    group.units_free = pool.free_units();
    group.extents = pool.extents();
    usage.in_use_bytes += group.units_in_use * group.unit_bytes;
    usage.reserved_bytes += group.units_reserved * group.unit_bytes;
    usage.waste_bytes += group.extents * arena_->geometry().extent_bytes - pool.held() * group.unit_bytes;
    usage.groups.push_back(std::move(group));
  }
  return usage;
}

std::string KvCacheCoordinator::check_holding(RequestId request, const Holding& holding) const {
  if (holding.computed > holding.reserved) {
    return fmt::format("request {}: {} tokens computed, {} reserved", request, holding.computed, holding.reserved);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t needed = groups_[g]->blocks_needed(holding.computed, holding.reserved);
    if (holding.tables[g].held() != needed) {
      return fmt::format("request {}, group {}: holds {} units, {} of {} tokens computed need {}", request,
                         groups_[g]->spec().name, holding.tables[g].held(), holding.computed, holding.reserved, needed);
    }
  }
  return {};
}

std::string KvCacheCoordinator::check_integrity() const {
  if (std::string problem = arena_->check_integrity(); !problem.empty()) return problem;
  for (const auto& [request, holding] : requests_) {
    if (std::string problem = check_holding(request, holding); !problem.empty()) return problem;
  }
  std::vector<int32_t> owners(size_t(arena_->geometry().extents), 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Pool& pool = groups_[g]->pool();
    if (std::string problem = pool.check_integrity(); !problem.empty()) return problem;
    for (int32_t extent = 0; extent < arena_->geometry().extents; ++extent) owners[extent] += pool.owns(extent) ? 1 : 0;
    std::set<int32_t> seen;
    for (const auto& [request, holding] : requests_) {
      for (const auto* units : {&holding.tables[g].units, &holding.tables[g].spare}) {
        for (int32_t unit : *units) {
          if (unit < 0) continue;
          if (!pool.holds(unit)) return fmt::format("request {}: unit {} is not held by its pool", request, unit);
          if (!seen.insert(unit).second)
            return fmt::format("unit {} of {} has two owners", unit, groups_[g]->spec().name);
        }
      }
    }
    if (int64_t(seen.size()) != pool.held()) {
      return fmt::format("group {}: requests own {} units, the pool counts {}", groups_[g]->spec().name, seen.size(),
                         pool.held());
    }
  }
  for (int32_t extent = 0; extent < arena_->geometry().extents; ++extent) {
    if (owners[extent] != (arena_->taken(extent) ? 1 : 0)) {
      return fmt::format("extent {} is {} but belongs to {} pools", extent, arena_->taken(extent) ? "taken" : "free",
                         owners[extent]);
    }
  }
  return {};
}

}  // namespace medley
