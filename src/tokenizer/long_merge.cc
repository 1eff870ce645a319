#include "tokenizer/long_merge.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"

namespace medley {
namespace {

constexpr uint32_t heap_symbols = 512;  // one heap over all candidates of a word up to this long wins against queues
constexpr size_t sweep_share = 8;       // a sweep of the whole word must merge pairs of that part of it
constexpr size_t kept_symbols = size_t(1) << 20;  // buffers of longer words (44 bytes a symbol) are given back

template <class Heap>
void push(Heap& heap, typename Heap::value_type value) {
  heap.push_back(value);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <class Heap>
void pop(Heap& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  heap.pop_back();
}

// Look-ups of one caller, which asks for the same pair again and again where a word repeats itself.
class Lookups {
 public:
  explicit Lookups(const MergeTable& merges) : merges_(merges) {}
  MergeTable::Merge find(int32_t left, int32_t right) {
    if (left != left_ || right != right_) last_ = merges_.find(left_ = left, right_ = right);
    return last_;
  }

 private:
  const MergeTable& merges_;
  int32_t left_ = -1, right_ = -1;
  MergeTable::Merge last_;
};

}  // namespace

LongMerge::Sweep LongMerge::sweep(const MergeTable& merges, std::vector<int32_t>& ids, int& sparse_sweeps) {
  Lookups pairs(merges), with_left(merges), with_right(merges);
  const size_t n = ids.size();
  uint32_t rank = MergeTable::no_rank;
  size_t count = 0, repeated = 0;
  for (size_t i = 0; i + 1 < n; ++i) {
    repeated += ids[i] == ids[i + 1] || (i > 0 && ids[i - 1] == ids[i + 1]);
    const uint32_t here = pairs.find(ids[i], ids[i + 1]).rank;
    count = here < rank ? 1 : count + (here == rank);
    rank = std::min(rank, here);
  }
  steps_ += n;
  if (rank == MergeTable::no_rank) return Sweep::nothing_left;
  if (count < n / sweep_share) {  // where a letter or two repeat, what is lowest at an end of the word hides the rest
    if (sparse_sweeps == 0 || n - repeated > n / sweep_share) return Sweep::too_few;
    --sparse_sweeps;
  }
  size_t out = 0, i = 0;
  while (i + 1 < n) {
    const MergeTable::Merge merge = pairs.find(ids[i], ids[i + 1]);
    if (merge.rank != rank) {
      ids[out++] = ids[i++];
      continue;
    }
    i += 2;
    int32_t made = merge.merged;
    // What it makes may merge before all that is left of this rank, and again: no other pair can come before.
    for (;;) {
      const auto left = out > 0 ? with_left.find(ids[out - 1], made) : MergeTable::Merge{};
      const auto right = i < n ? with_right.find(made, ids[i]) : MergeTable::Merge{};
      if (std::min(left.rank, right.rank) > rank) break;
      made = left.rank <= right.rank ? left.merged : right.merged;
      left.rank <= right.rank ? --out : ++i;
    }
    ids[out++] = made;
  }
  steps_ += n;
  if (i < n) ids[out++] = ids[i];
  ids.resize(out);
  return Sweep::merged;
}

LongMerge::Queue& LongMerge::queue_of(uint32_t rank) {
  uint32_t& index = queue_of_rank_[rank];
  if (index == none) {
    index = uint32_t(queues_.size());
    queues_.push_back({rank, none, none});
  }
  return queues_[index];
}

void LongMerge::offer_late(Candidate candidate) {
  push(late_, candidate);
  steps_ += std::bit_width(late_.size());
}

void LongMerge::offer(Candidate candidate) {
  ++steps_;
  if (!with_queues_) return offer_late(candidate);
  Queue& queue = queue_of(candidate.rank);
  if (queue.head != none && entries_[queue.tail].position > candidate.position) return offer_late(candidate);
  uint32_t entry = free_entry_;
  if (entry == none) {
    entry = uint32_t(entries_.size());
    entries_.emplace_back();
  } else {
    free_entry_ = entries_[entry].next;
  }
  entries_[entry] = {candidate.position, none};
  if (queue.head == none) {
    queue.head = entry;
    push(fronts_, {candidate.rank, uint32_t(&queue - queues_.data())});
    steps_ += std::bit_width(fronts_.size());
  } else {
    entries_[queue.tail].next = entry;
  }
  queue.tail = entry;
}

bool LongMerge::take(Candidate& candidate) {
  ++steps_;
  if (fronts_.empty() && late_.empty()) return false;
  if (!fronts_.empty()) {
    Queue& queue = queues_[fronts_.front().position];
    const uint32_t entry = queue.head;
    candidate = {queue.rank, entries_[entry].position};
    if (late_.empty() || late_.front() > candidate) {
      queue.head = entries_[entry].next;
      entries_[entry].next = free_entry_;
      free_entry_ = entry;
      if (queue.head == none) {
        steps_ += std::bit_width(fronts_.size());
        pop(fronts_);
      }
      return true;
    }
  }
  candidate = late_.front();
  steps_ += std::bit_width(late_.size());
  pop(late_);
  return true;
}

void LongMerge::look_at_pair(const MergeTable& merges, uint32_t left) {
  Symbol& symbol = symbols_[left];
  symbol.pair = symbol.next == none ? MergeTable::Merge{} : merges.find(symbol.id, symbols_[symbol.next].id);
  if (symbol.pair.rank != MergeTable::no_rank) offer({symbol.pair.rank, left});
}

void LongMerge::merge(const MergeTable& merges, uint32_t left) {
  Symbol& symbol = symbols_[left];
  Symbol& right = symbols_[symbol.next];
  symbol.id = symbol.pair.merged;
  symbol.next = right.next;
  right.pair = {};
  if (symbol.next != none) symbols_[symbol.next].previous = left;
  if (symbol.previous != none) look_at_pair(merges, symbol.previous);
  look_at_pair(merges, left);
}

void LongMerge::run(const MergeTable& merges, std::vector<int32_t>& ids) {
  MEDLEY_CHECK(ids.size() < none);
  if (queue_of_rank_.size() < merges.end_rank()) queue_of_rank_.resize(merges.end_rank(), none);
  with_queues_ = ids.size() > heap_symbols;
  int sparse_sweeps = 16;
  for (Sweep done = Sweep::merged; with_queues_ && done != Sweep::too_few;) {
    done = sweep(merges, ids, sparse_sweeps);
    if (done == Sweep::nothing_left) return;
  }
  const auto n = uint32_t(ids.size());
  symbols_.resize(n);
  for (uint32_t i = 0; i < n; ++i) symbols_[i] = {ids[i], i > 0 ? i - 1 : none, i + 1 < n ? i + 1 : none, {}};
  for (uint32_t i = 0; i < n; ++i) look_at_pair(merges, i);
  for (Candidate candidate; take(candidate);)
    // Otherwise stale: one of the two has been merged with another neighbour.
    if (symbols_[candidate.position].pair.rank == candidate.rank) merge(merges, candidate.position);
  ids.clear();
  for (uint32_t i = n > 0 ? 0 : none; i != none; i = symbols_[i].next) ids.push_back(symbols_[i].id);
  forget(n);
}

void LongMerge::forget(size_t symbols) {
  for (const Queue& queue : queues_) queue_of_rank_[queue.rank] = none;
  queues_.clear();
  entries_.clear();  // not kept as free ones, whose order in memory each word would shuffle further
  free_entry_ = none;
  if (symbols <= kept_symbols) return;
  std::vector<Symbol>().swap(symbols_);
  std::vector<Entry>().swap(entries_);
}

}  // namespace medley
