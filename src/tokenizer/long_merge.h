// The merges of a word of any length, in the order byte-pair encoding has them: lowest rank first, of equal ranks the
// leftmost.
//
// Candidates wait in one queue a rank. The merges of one rank go through the word from left to right, and so the pairs
// that they make come to their queues in order of position: a candidate costs a few steps, whatever the word's length,
// where a heap over all of them costs log n cache misses. Only ranks with candidates are in a heap, and the odd
// candidate that comes out of order (a rank of several pairs, a pair of a lower rank than those that made it).
//
// A word that repeats itself needs not even that: while the lowest rank is that of a good part of all pairs, one sweep
// over the word merges them all, and a few sweeps halve it away.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tokenizer/merge_table.h"

namespace medley {

class LongMerge {
 public:
  // Replaces `ids` by what is left when no pair merges. `merges` is the same in all calls.
  void run(const MergeTable& merges, std::vector<int32_t>& ids);

  // Candidates queued and taken since the object exists, and the levels of heaps that they went through: the work that
  // grows with the word, for tests of how it does.
  uint64_t steps() const { return steps_; }

 private:
  static constexpr uint32_t none = std::numeric_limits<uint32_t>::max();
  struct Symbol {
    int32_t id;
    uint32_t previous, next;  // positions, `none` at the ends
    MergeTable::Merge pair;   // with the next; no rank once this symbol is merged away
  };
  struct Entry {
    uint32_t position, next;  // next: of entries_, `none` for the last
  };
  struct Queue {
    uint32_t rank;
    uint32_t head, tail;  // of entries_, `none` if empty
  };
  struct Candidate {
    uint32_t rank, position;
    uint64_t order() const { return uint64_t(rank) << 32 | position; }
    bool operator>(const Candidate& other) const { return order() > other.order(); }
  };

  enum class Sweep { merged, nothing_left, too_few };
  Sweep sweep(const MergeTable& merges, std::vector<int32_t>& ids, int& sparse_sweeps);
  void look_at_pair(const MergeTable& merges, uint32_t left);
  void offer(Candidate candidate);
  void offer_late(Candidate candidate);
  bool take(Candidate& candidate);
  Queue& queue_of(uint32_t rank);
  void merge(const MergeTable& merges, uint32_t left);
  void forget(size_t symbols);

  std::vector<Symbol> symbols_;
  std::vector<Entry> entries_;
  uint32_t free_entry_ = none;  // entries already taken, linked by `next`
  std::vector<Queue> queues_;
  std::vector<uint32_t> queue_of_rank_;  // of queues_, `none` for a rank that has not come up in this word
  std::vector<Candidate> fronts_;        // heap of the queues that are not empty; position: of queues_
  std::vector<Candidate> late_;          // heap of those out of order
  bool with_queues_ = false;
  uint64_t steps_ = 0;
};

}  // namespace medley
