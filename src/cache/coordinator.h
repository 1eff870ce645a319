// The cache as the scheduler sees it: requests reserve room for tokens, get their tables for a step, say how far they
// got, and leave. One class over all of a model's groups, naming no kind: what differs by kind is in the managers.
//
//   admission   reserve(request, tokens)     all groups or none
//   each step   reserve (growth), fill(plan), and after the step commit(request, computed)
//   the end     release(request)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/arena.h"
#include "cache/manager.h"
#include "core/kv_cache_spec.h"
#include "core/step_plan.h"

namespace medley {

// Whether a request of `tokens` tokens fits a cache that holds nothing else.
struct CacheFit {
  int64_t tokens = 0;
  int64_t extents_needed = 0;
  int64_t extents_total = 0;
  int64_t most_tokens = 0;  // what would fit; filled when `tokens` does not
  std::string message;      // the numbers, for the request's owner; filled when `tokens` does not fit

  bool fits() const { return extents_needed <= extents_total; }
};

struct GroupUsage {
  std::string name;
  int64_t unit_bytes = 0;
  int64_t units_in_use = 0;    // in a request's tables
  int64_t units_reserved = 0;  // held by a request for tokens to come
  int64_t units_free = 0;      // in the group's extents, held by nobody
  int32_t extents = 0;
};

// capacity = in use + reserved + waste + free
struct CacheUsage {
  int64_t capacity_bytes = 0;
  int64_t in_use_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t waste_bytes = 0;  // free units inside taken extents, and the tails of these extents
  int64_t free_bytes = 0;   // free extents
  std::vector<GroupUsage> groups;
};

class KvCacheCoordinator {
 public:
  // `arena` outlives the coordinator. max_step_tokens: the most tokens of one request that a step computes.
  KvCacheCoordinator(const std::vector<KvCacheSpec>& specs, Arena& arena, int64_t max_step_tokens);

  CacheFit can_ever_fit(int64_t tokens) const;
  // How many requests of `tokens` (> 0) tokens each an otherwise empty cache holds.
  int64_t most_requests(int64_t tokens) const;

  // Room for the request's first `tokens` tokens; more than it had, or a no-op. On false nothing has changed.
  [[nodiscard]] bool reserve(RequestId request, int64_t tokens);

  // plan.groups for plan.rows, whose requests are reserved up to the end of their rows.
  void fill(StepPlan& plan);

  // The request's first `computed` tokens are in the cache; what no later token reads is freed.
  void commit(RequestId request, int64_t computed);

  // Forgets the tokens from `tokens` on, and the reservation beyond. Returns the length it went back to: less than
  // `tokens` where a group cannot go back there (a state cannot be undone), and then computing goes on from it.
  int64_t truncate(RequestId request, int64_t tokens);

  void release(RequestId request);  // no-op for a request that holds nothing

  int64_t reserved(RequestId request) const;  // tokens; 0 for an unknown request
  int64_t largest_block() const;              // tokens of the largest page; 1 without pages
  int64_t max_step_tokens() const { return max_step_tokens_; }
  size_t requests() const { return requests_.size(); }
  CacheUsage usage() const;

  // Free + held = total in every pool and in the arena, no unit owned twice, every request holds what it reserved.
  // What is wrong, or empty. Costs a pass over everything: for tests, and for debug builds when idle.
  std::string check_integrity() const;

 private:
  struct Holding {
    int64_t computed = 0;
    int64_t reserved = 0;
    std::vector<BlockTable> tables;  // parallel to groups_
  };

  int64_t extents_needed(int64_t tokens, int64_t requests = 1) const;
  std::string check_holding(RequestId request, const Holding& holding) const;

  Arena* arena_;
  int64_t max_step_tokens_;
  std::vector<std::unique_ptr<SingleTypeCacheManager>> groups_;
  std::unordered_map<RequestId, Holding> requests_;
};

}  // namespace medley
