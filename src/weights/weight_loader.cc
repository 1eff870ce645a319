#include "weights/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "kernels/block_format.h"

namespace medley {

UnitRange units_of(Shard shard, int64_t units) {
  const int64_t begin = units * shard.rank / shard.world;
  return {begin, units * (shard.rank + 1) / shard.world - begin};
}

HeadRange heads_of(Shard shard, int64_t heads, int64_t groups, const std::string& where) {
  if (heads <= 0 || groups <= 0 || heads % groups != 0)
    fail("{}: {} heads cannot share {} key heads or groups evenly", where, heads, groups);
  if (groups >= shard.world) {
    const UnitRange mine = units_of(shard, groups);
    return {{mine.begin * (heads / groups), mine.count * (heads / groups)}, mine};
  }
  // Several ranks share a group: its heads are spread over them, unevenly if need be.
  const int64_t ranks = shard.world / groups, share = heads / groups;
  if (shard.world % groups != 0 || share < ranks)
    fail("{}: {} heads over {} key heads or groups cannot be spread over {} ranks", where, heads, groups, shard.world);
  const int64_t group = shard.rank / ranks;
  const UnitRange mine = units_of({int(shard.rank % ranks), int(ranks)}, share);
  return {{group * share + mine.begin, mine.count}, {group, 1}};
}

namespace {

bool is_weight(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 || is_block(dtype);
}

}  // namespace

WeightLoader::WeightLoader(const Checkpoint& checkpoint, Shard shard, Progress progress)
    : checkpoint_(&checkpoint), shard_(shard), progress_(std::move(progress)) {
  MEDLEY_CHECK(shard.world > 0 && shard.rank >= 0 && shard.rank < shard.world);
}

// A config.json can name sizes that no file has: refused before anything is made of them.
void WeightLoader::check_size(const std::string& name, const std::vector<int64_t>& shape) const {
  constexpr int64_t most_elements = int64_t(1) << 44;
  constexpr size_t most_tensors = 300'000;  // parts of tensors count; 61 layers with 384 experts have 70,000
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size <= 0 || elements > most_elements / size)
      fail("tensor {}: config.json makes its shape {}, which no checkpoint has", name, describe_shape(shape));
    elements *= size;
  }
  if (taken_.size() >= most_tensors)
    fail("tensor {}: config.json makes the model more than {} tensors", name, most_tensors);
}

std::string WeightLoader::stored_name(const std::string& name) const {
  const auto& [prefix, stored] = renamed_;
  return !prefix.empty() && name.starts_with(prefix) ? stored + name.substr(prefix.size()) : name;
}

TensorView WeightLoader::whole(const std::string& name, const Checkpoint::Entry& entry) {
  TensorView view = entry.tensor.view;
  if (!entry.converted.fill) return view;
  Made& made = made_[name];
  if (made.takers++ == 0) {
    made.buffer = Buffer(view.bytes());
    entry.converted.fill(made.buffer.data());
  }
  view.data = made.buffer.data();
  return view;
}

TensorView WeightLoader::take(const std::string& wanted, const std::vector<int64_t>& shape, const Slice& slice) {
  const std::string name = stored_name(wanted);
  check_size(name, shape);
  TensorView whole(nullptr, DType::bf16, std::span<const int64_t>(shape));
  if (checkpoint_ != nullptr) {
    const Checkpoint::Entry* entry = checkpoint_->find(name);
    if (entry == nullptr) fail("{}: tensor {} {} is missing", checkpoint_->describe(), name, describe_shape(shape));
    const StoredTensor& stored = entry->tensor;
    if (!stored.readable || !is_weight(stored.view.dtype))
      fail(
          "{}: tensor {} is {}; medley reads F32, BF16, F16 and the block types of GGUF files from Q4_0 to Q6_K, IQ4 "
          "and MXFP4. Convert the checkpoint to one of them.",
          entry->file->path(), name, stored.dtype_name);
    const std::span<const int64_t> found(stored.view.shape.data(), size_t(stored.view.rank));
    if (!std::equal(found.begin(), found.end(), shape.begin(), shape.end()))
      fail("{}: tensor {} has shape {}, config.json makes it {}", entry->file->path(), name, describe_shape(found),
           describe_shape(shape));
    if (check_only_) {
      whole.dtype = stored.view.dtype;
      done_bytes_ += stored.view.bytes();
    } else {
      whole = this->whole(name, *entry);
    }
    used_.insert(name);
  }
  MEDLEY_CHECK(slice.dim >= 0 && slice.dim < whole.rank);
  const int64_t count = slice.count < 0 ? shape[size_t(slice.dim)] : slice.count;
  MEDLEY_CHECK(slice.units >= 0 && (slice.units == 0 || count % slice.units == 0));
  const UnitRange mine = slice.units == 0 ? UnitRange{0, 1} : units_of(shard_, slice.units);
  if (mine.count == 0)
    fail("tensor {}: {} units cannot be spread over {} ranks; use fewer ranks", name, slice.units, shard_.world);
  const int64_t unit = count / std::max<int64_t>(slice.units, 1);
  const int64_t begin = slice.begin + mine.begin * unit;
  taken_.push_back({wanted, shape, slice.dim, begin, mine.count * unit, active_, mtp_});
  const int64_t block = block_elements(whole.dtype);
  if (slice.dim == whole.rank - 1 && (begin % block != 0 || mine.count * unit % block != 0))
    fail(
        "tensor {}: columns {} to {} are this rank's part, which cuts blocks of {} ({}). Use a number of ranks that "
        "divides {} blocks, or a file of a type with smaller blocks (Q8_0: 32).",
        name, begin, begin + mine.count * unit, block, name_of(whole.dtype), shape.back() / block);
  if (whole.data != nullptr) return whole.slice(slice.dim, begin, mine.count * unit);
  whole.shape[slice.dim] = mine.count * unit;  // planning: a shape without memory
  return whole;
}

std::vector<float> WeightLoader::take_floats(const std::string& name, const std::vector<int64_t>& shape,
                                             const Slice& slice) {
  const TensorView view = take(name, shape, slice);
  constexpr int64_t most_floats = int64_t(1) << 26;  // biases, norms, small tables: Jamba 1.5 Large has 2^24 in all
  floats_ += view.elements();
  if (floats_ > most_floats)
    fail("tensor {} {}: too large for a tensor that is kept as float32", name, describe_shape(shape));
  std::vector<float> values(size_t(view.elements()), 0.0f);
  for (size_t i = 0; random_ && i < values.size(); ++i) values[i] = 0.5f + float(i * 0x9e3779b1u % 1021) / 1020;
  if (planning() || random_) return values;
  dequantize(view, values.data());
  packed(view);
  return values;
}

bool WeightLoader::has(const std::string& name) const {
  return checkpoint_ != nullptr && checkpoint_->find(stored_name(name)) != nullptr;
}

bool WeightLoader::has_prefix(const std::string& prefix) const {
  if (checkpoint_ == nullptr) return false;
  const std::string stored = stored_name(prefix);
  const auto at = checkpoint_->tensors().lower_bound(stored);
  return at != checkpoint_->tensors().end() && at->first.starts_with(stored);
}

void WeightLoader::ignore(const std::string& name) {
  if (has(name)) used_.insert(stored_name(name));
}

void WeightLoader::ignore_prefix(const std::string& prefix) {
  if (checkpoint_ == nullptr) return;
  auto at = checkpoint_->tensors().lower_bound(prefix);
  for (; at != checkpoint_->tensors().end() && at->first.starts_with(prefix); ++at) used_.insert(at->first);
}

void WeightLoader::packed(const TensorView& view) {
  if (checkpoint_ == nullptr) return;
  done_bytes_ += view.bytes();
  if (view.contiguous()) checkpoint_->release({static_cast<const std::byte*>(view.data), view.bytes()});
  // A converted tensor goes when its only taker has packed all of it; others stay until finish().
  std::erase_if(made_, [&](const auto& named) {
    const Made& made = named.second;
    return made.takers == 1 && made.buffer.data() == view.data && made.buffer.bytes() == view.bytes();
  });
  if (progress_) progress_(done_bytes_, checkpoint_->total_bytes());
}

void WeightLoader::finish() {
  made_.clear();
  if (checkpoint_ == nullptr) return;
  checkpoint_->check_intact();
  std::vector<std::string> unused;
  for (const auto& [name, entry] : checkpoint_->tensors())
    if (!used_.contains(name)) unused.push_back(fmt::format("{} {}", name, entry.tensor.view.describe()));
  if (unused.empty()) return;
  const size_t total = unused.size();
  unused.resize(std::min<size_t>(total, 8));
  fail("{}: {} tensor{} the model does not use: {}{}. The config.json may belong to another model.",
       checkpoint_->describe(), total, total == 1 ? "" : "s", join(unused, ", "), total > unused.size() ? ", ..." : "");
}

}  // namespace medley
