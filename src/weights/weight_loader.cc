#include "weights/weight_loader.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

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

WeightLoader::WeightLoader(const Checkpoint& checkpoint, Shard shard, Progress progress)
    : checkpoint_(&checkpoint), shard_(shard), progress_(std::move(progress)) {
  MEDLEY_CHECK(shard.world > 0 && shard.rank >= 0 && shard.rank < shard.world);
}

TensorView WeightLoader::take(const std::string& name, const std::vector<int64_t>& shape, const Slice& slice) {
  TensorView whole(nullptr, DType::bf16, std::span<const int64_t>(shape));
  if (checkpoint_ != nullptr) {
    const Checkpoint::Entry* entry = checkpoint_->find(name);
    if (entry == nullptr) fail("{}: tensor {} {} is missing", checkpoint_->describe(), name, describe_shape(shape));
    const StoredTensor& stored = *entry->tensor;
    if (!stored.readable ||
        (stored.view.dtype != DType::f32 && stored.view.dtype != DType::bf16 && stored.view.dtype != DType::f16))
      fail("{}: tensor {} is {}; medley reads F32, BF16 and F16 here. Convert the checkpoint to BF16.",
           entry->file->path(), name, stored.dtype_name);
    const std::span<const int64_t> found(stored.view.shape.data(), size_t(stored.view.rank));
    if (!std::equal(found.begin(), found.end(), shape.begin(), shape.end()))
      fail("{}: tensor {} has shape {}, config.json makes it {}", entry->file->path(), name, describe_shape(found),
           describe_shape(shape));
    whole = stored.view;
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
  taken_.push_back({name, shape, slice.dim, begin, mine.count * unit, active_, mtp_});
  if (whole.data != nullptr) return whole.slice(slice.dim, begin, mine.count * unit);
  whole.shape[slice.dim] = mine.count * unit;  // planning: a shape without memory
  return whole;
}

std::vector<float> WeightLoader::take_floats(const std::string& name, const std::vector<int64_t>& shape,
                                             const Slice& slice) {
  const TensorView view = take(name, shape, slice);
  std::vector<float> values(size_t(view.elements()), 0.0f);
  for (size_t i = 0; random_ && i < values.size(); ++i) values[i] = 0.5f + float(i * 0x9e3779b1u % 1021) / 1020;
  if (checkpoint_ == nullptr) return values;
  std::array<int64_t, max_rank> index{};
  for (float& value : values) {
    int64_t offset = 0;
    for (int d = 0; d < view.rank; ++d) offset += index[size_t(d)] * view.strides[d];
    switch (view.dtype) {
      case DType::f32: value = view.as<float>()[offset]; break;
      case DType::bf16: value = float(view.as<bf16>()[offset]); break;
      default: value = float(view.as<f16>()[offset]); break;
    }
    for (int d = view.rank - 1; d >= 0 && ++index[size_t(d)] == view.shape[d]; --d) index[size_t(d)] = 0;
  }
  packed(view);
  return values;
}

bool WeightLoader::has(const std::string& name) const {
  return checkpoint_ != nullptr && checkpoint_->find(name) != nullptr;
}

bool WeightLoader::has_prefix(const std::string& prefix) const {
  if (checkpoint_ == nullptr) return false;
  const auto at = checkpoint_->tensors().lower_bound(prefix);
  return at != checkpoint_->tensors().end() && at->first.starts_with(prefix);
}

void WeightLoader::ignore(const std::string& name) {
  if (has(name)) used_.insert(name);
}

void WeightLoader::packed(const TensorView& view) {
  if (checkpoint_ == nullptr) return;
  done_bytes_ += view.bytes();
  if (view.contiguous()) checkpoint_->release({static_cast<const std::byte*>(view.data), view.bytes()});
  if (progress_) progress_(done_bytes_, checkpoint_->total_bytes());
}

void WeightLoader::finish() const {
  if (checkpoint_ == nullptr) return;
  std::vector<std::string> unused;
  for (const auto& [name, entry] : checkpoint_->tensors())
    if (!used_.contains(name)) unused.push_back(fmt::format("{} {}", name, entry.tensor->view.describe()));
  if (unused.empty()) return;
  const size_t total = unused.size();
  unused.resize(std::min<size_t>(total, 8));
  fail("{}: {} tensor{} the model does not use: {}{}. The config.json may belong to another model.",
       checkpoint_->describe(), total, total == 1 ? "" : "s", join(unused, ", "), total > unused.size() ? ", ..." : "");
}

}  // namespace medley
