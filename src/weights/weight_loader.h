// How a model takes its weights: by name, expected shape and shard, every one accounted for.
//
// The same load code runs over a checkpoint and over nothing at all: without a checkpoint the loader hands out views
// without memory and only keeps the record, which is how `medley inspect` counts parameters from a bare config.json
// and how a test proves that the shards of any world make up the whole.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "weights/checkpoint.h"

namespace medley {

struct Shard {
  int rank = 0;
  int world = 1;
};

// Which part of a stored tensor a layer wants: elements [begin, begin + count) of dimension `dim`, and of those the
// rank's share. Sharing cuts them into `units` equal units and gives each rank a run of whole units; units = 0 gives
// all of them to every rank that asks.
struct Slice {
  int dim = 0;
  int64_t begin = 0;
  int64_t count = -1;  // -1: the whole dimension
  int64_t units = 0;
};

// First unit and number of units of a rank: uneven when the world does not divide them.
struct UnitRange {
  int64_t begin = 0, count = 0;
};
UnitRange units_of(Shard shard, int64_t units);

// A rank's query heads and the key heads (or groups) that they read; `heads` is a multiple of `groups`. With fewer
// groups than ranks, ranks share a group, whose weights each of them holds. Throws Error when the world does not fit.
struct HeadRange {
  UnitRange heads, groups;
};
HeadRange heads_of(Shard shard, int64_t heads, int64_t groups, const std::string& where);

// What was taken of a tensor, for the record.
struct TakenWeight {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  int dim = 0;
  int64_t begin = 0, count = 0;  // along dim
  double active = 1;             // share of it that one token uses: top_k / experts
  bool mtp = false;
};

class WeightLoader {
 public:
  using Progress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

  // Over a checkpoint; `checkpoint` outlives the views handed out.
  WeightLoader(const Checkpoint& checkpoint, Shard shard, Progress progress = {});
  // Over nothing: views have shapes, dtype bf16 and no memory.
  explicit WeightLoader(Shard shard) : shard_(shard) {}

  // The same, for a model that is to run without its weights: takers fill in numbers of their own, take_floats gives
  // numbers between 0.5 and 1.5.
  static WeightLoader random(Shard shard) {
    WeightLoader loader(shard);
    loader.random_ = true;
    return loader;
  }

  bool planning() const { return checkpoint_ == nullptr && !random_; }
  bool random() const { return random_; }
  Shard shard() const { return shard_; }

  // The rank's part of tensor `name`, which must have this shape and be f32, bf16 or f16. Throws Error naming the
  // tensor, the shape expected and the one found.
  TensorView take(const std::string& name, const std::vector<int64_t>& shape, const Slice& slice = {});
  // The same, copied to float32.
  std::vector<float> take_floats(const std::string& name, const std::vector<int64_t>& shape, const Slice& slice = {});

  // Is a tensor there? While planning: false. Only for what a config does not decide.
  bool has(const std::string& name) const;
  bool has_prefix(const std::string& prefix) const;

  // A tensor whose content follows from others (rotary inv_freq, a tied lm_head): may be there, is not read.
  void ignore(const std::string& name);

  // The memory of this view was packed elsewhere: its pages may go. Reports progress.
  void packed(const TensorView& view);

  // Marks what is taken meanwhile, for the record.
  void set_active(double share) { active_ = share; }
  void set_mtp(bool mtp) { mtp_ = mtp; }

  // Throws Error naming tensors of the checkpoint that nobody took.
  void finish() const;

  const std::vector<TakenWeight>& taken() const { return taken_; }

 private:
  const Checkpoint* checkpoint_ = nullptr;
  Shard shard_;
  bool random_ = false;
  Progress progress_;
  uint64_t done_bytes_ = 0;
  double active_ = 1;
  bool mtp_ = false;
  std::set<std::string> used_;
  std::vector<TakenWeight> taken_;
};

}  // namespace medley
