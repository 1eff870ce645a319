#include "layers/linear.h"

#include <algorithm>
#include <cmath>

#include "kernels/random.h"

namespace medley {
namespace {

DType common_dtype(const std::vector<TensorView>& views) {
  for (const TensorView& view : views)
    if (view.dtype != views[0].dtype)
      fail("tensors that medley merges into one matrix are stored as {} and {}; store them alike",
           name_of(views[0].dtype), name_of(view.dtype));
  return views[0].dtype;
}

// What a packed matrix holds.
std::string key_of(WeightLayout layout, const std::vector<LinearPart>& parts) {
  std::string key = fmt::format("{}", int(layout));
  for (const LinearPart& part : parts)
    key += fmt::format("|{} {} {} {} {}", part.weight, part.slice.dim, part.slice.begin, part.slice.count,
                       part.slice.units);
  return key;
}

// The same numbers in every layout and on every device.
void fill_random(LoadContext& context, PackedMatrices& packed) {
  const WeightView& view = packed.view;
  const auto scale = float(std::sqrt(3.0 / double(view.k)));  // outputs of inputs of size 1 are of size 1
  const auto seed = [&](int64_t slot) { return uint64_t((view.n * 31 + view.k) * 1009 + slot) << 32; };
  if (view.layout == WeightLayout::row_major) {
    for (int64_t slot = 0; slot < view.slots; ++slot) {
      const TensorView matrix(packed.storage.data() + slot * view.slot_bytes, view.dtype, {view.n, view.k},
                              packed.storage.device());
      medley::fill_random(matrix, seed(slot), scale, context.threads);
    }
    return;
  }
  const Buffer rows(size_t(packed_bytes(WeightLayout::row_major, view.dtype, view.n, view.k)));
  const TensorView matrix = rows.view(view.dtype, {view.n, view.k});
  for (int64_t slot = 0; slot < view.slots; ++slot) {
    medley::fill_random(matrix, seed(slot), scale, context.threads);
    pack_rows(matrix, 0, view, packed.storage.data() + slot * view.slot_bytes);
  }
}

}  // namespace

PackedMatrices pack_matrices(LoadContext& context, WeightLayout layout,
                             const std::vector<std::vector<TensorView>>& slots) {
  PackedMatrices packed;
  WeightView& view = packed.view;
  view.layout = layout;
  view.slots = int64_t(slots.size());
  view.dtype = common_dtype(slots.at(0));
  view.k = slots[0].at(0).size(1);
  for (const TensorView& part : slots[0]) view.n += part.size(0);
  view.slot_bytes = packed_bytes(layout, view.dtype, view.n, view.k);
  if (context.weights.planning()) return packed;

  const Device device = context.kernels.device();
  packed.storage = Buffer(size_t(view.slot_bytes * view.slots), device);
  view.data = packed.storage.data();
  if (context.weights.random()) {
    fill_random(context, packed);
    return packed;
  }
  // A task packs a run of rows of one part: on the host whole panels, so that threads write apart; for the device
  // what a piece of the uploader holds.
  const int64_t row_bytes = view.k * int64_t(size_of(view.dtype));
  int64_t run = panel_rows;
  if (device == Device::cuda) {
    MEDLEY_CHECK(layout == WeightLayout::row_major);
    if (!context.uploader) context.uploader = std::make_shared<Uploader>(context.threads.size());
    run = int64_t(context.uploader->piece_bytes()) / row_bytes;
    if (run == 0) fail("a matrix with rows of {} bytes is too wide to be loaded onto the device", row_bytes);
  }
  struct Task {
    TensorView rows;
    int64_t row0, slot;
  };
  std::vector<Task> tasks;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    MEDLEY_CHECK(slots[slot].size() == slots[0].size());
    int64_t row0 = 0;
    for (const TensorView& part : slots[slot]) {
      if (part.dtype != view.dtype) common_dtype({slots[0][0], part});
      for (int64_t row = 0; row < part.size(0); row += run)
        tasks.push_back({part.slice(0, row, std::min(run, part.size(0) - row)), row0 + row, int64_t(slot)});
      row0 += part.size(0);
    }
  }
  context.threads.parallel_for(int64_t(tasks.size()), [&](int64_t i, int thread) {
    const Task& task = tasks[size_t(i)];
    std::byte* matrix = packed.storage.data() + task.slot * view.slot_bytes;
    if (device == Device::cpu) return pack_rows(task.rows, task.row0, view, matrix);
    std::byte* piece = context.uploader->piece(thread);
    pack_rows(task.rows, 0, {.dtype = view.dtype, .n = task.rows.size(0), .k = view.k}, piece);
    context.uploader->send(thread, matrix + task.row0 * row_bytes, size_t(task.rows.size(0) * row_bytes));
  });
  for (const auto& slot : slots)
    for (const TensorView& part : slot) context.weights.packed(part);
  return packed;
}

Linear::Linear(LoadContext& context, const std::vector<LinearPart>& parts) {
  std::vector<TensorView> views;
  std::vector<float> all_bias, scale;
  bool any_bias = false;
  for (const LinearPart& part : parts) {
    views.push_back(context.weights.take(part.weight, {part.out, part.in}, part.slice));
    any_bias = any_bias || !part.bias.empty();
  }
  for (size_t i = 0; any_bias && i < parts.size(); ++i) {
    std::vector<float> bias(size_t(views[i].size(0)), 0.0f);
    if (!parts[i].bias.empty())
      bias = context.weights.take_floats(parts[i].bias, {parts[i].out},
                                         parts[i].slice.dim == 0 ? parts[i].slice : Slice{});
    all_bias.insert(all_bias.end(), bias.begin(), bias.end());
  }
  bias_ = Parameter(context, all_bias);
  int64_t rows = 0;
  for (const TensorView& view : views) rows += view.size(0);
  const auto scaled = [](const LinearPart& part) { return part.scale != 1; };
  if (std::any_of(parts.begin(), parts.end(), scaled)) {
    for (size_t i = 0; i < parts.size(); ++i) scale.insert(scale.end(), size_t(views[i].size(0)), parts[i].scale);
    scale_ = Parameter(context, scale);
    scale_columns_ = context.kernels.resolve(scale_columns_op(), {.dim = rows});
  }
  kernel_ = context.kernels.resolve(
      linear_op(), {.in = views[0].size(1), .out = rows, .x = context.dtype, .weight = common_dtype(views)});
  std::shared_ptr<const PackedMatrices>& packed = context.packed[key_of(kernel_.layout, parts)];
  if (!packed) packed = std::make_shared<const PackedMatrices>(pack_matrices(context, kernel_.layout, {views}));
  storage_ = packed;
  weight_ = packed->view;
}

void Linear::operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  kernel_({.x = x, .weight = weight_, .bias = bias_.data(), .y = y}, exec);
  if (!scale_.empty()) scale_columns_({.scale = scale_.data(), .y = y}, exec);
}

void Linear::accumulate(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  MEDLEY_CHECK(bias_.empty() && scale_.empty());
  kernel_({.x = x, .weight = weight_, .y = y, .accumulate = true}, exec);
}

RowParallelLinear::RowParallelLinear(LoadContext& context, LinearPart part) : comm_(&context.comm) {
  part.slice.dim = 1;
  if (context.shard().rank != 0 && !part.bias.empty()) part.bias.clear();
  linear_ = Linear(context, {part});
}

void RowParallelLinear::operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  linear_(x, y, exec);
  comm_->all_reduce(y);
}

}  // namespace medley
