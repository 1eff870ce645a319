#include "layers/linear.h"

#include <algorithm>
#include <cmath>

#include "kernels/random.h"

namespace medley {
namespace {

// Is this a view of blocks that does not run along them?
bool across_blocks(const TensorView& part) {
  return is_block(part.dtype) && part.size(1) > 1 && part.strides[1] != 1;
}

// Ends of the runs of consecutive parts that are packed in one dtype.
std::vector<size_t> runs_of(const LoadContext& context, const std::vector<TensorView>& parts) {
  std::vector<size_t> ends;
  for (size_t i = 1; i <= parts.size(); ++i)
    if (i == parts.size() || packed_dtype(context, parts[i]) != packed_dtype(context, parts[i - 1])) ends.push_back(i);
  return ends;
}

int64_t rows_of(std::span<const TensorView> parts) {
  int64_t rows = 0;
  for (const TensorView& part : parts) rows += part.size(0);
  return rows;
}

// What a packed matrix holds.
std::string key_of(WeightLayout layout, std::span<const LinearPart> parts) {
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

DType packed_dtype(const LoadContext& context, const TensorView& part) {
  if (context.expand_blocks && is_block(part.dtype)) return context.dtype;
  return across_blocks(part) ? DType::f32 : part.dtype;
}

PackedMatrices pack_matrices(LoadContext& context, WeightLayout layout,
                             const std::vector<std::vector<TensorView>>& slots) {
  PackedMatrices packed;
  WeightView& view = packed.view;
  view.layout = layout;
  view.slots = int64_t(slots.size());
  view.dtype = packed_dtype(context, slots.at(0).at(0));
  view.k = slots[0][0].size(1);
  view.n = rows_of(slots[0]);
  view.slot_bytes = packed_bytes(layout, view.dtype, view.n, view.k);
  if (context.weights.planning()) return packed;

  const Device device = context.kernels.device();
  packed.storage = Buffer(size_t(view.slot_bytes * view.slots), device);
  view.data = packed.storage.data();
  if (context.weights.random()) {
    fill_random(context, packed);
    return packed;
  }
  // A task packs a run of rows of one part: on the host up to a panel's rows (where parts share a panel, their rows
  // still lie apart); for the device what a piece of the uploader holds.
  const int64_t row_bytes = packed_bytes(WeightLayout::row_major, view.dtype, 1, view.k);
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
      const DType stored = packed_dtype(context, part);
      if (stored != view.dtype)
        fail("experts' matrices of one kind are stored as {} and {}; store them alike", name_of(view.dtype),
             name_of(stored));
      // Blocks that run across the rows are taken apart once.
      const int64_t each = across_blocks(part) ? part.size(0) : run;
      if (device == Device::cuda && each > run && part.size(0) > run)
        fail("a matrix of {} x {} whose blocks run across its rows is too large to be loaded onto the device",
             part.size(0), view.k);
      for (int64_t row = 0; row < part.size(0); row += each)
        tasks.push_back({part.slice(0, row, std::min(each, part.size(0) - row)), row0 + row, int64_t(slot)});
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
  in_ = views[0].size(1);
  out_ = rows_of(views);
  const auto scaled = [](const LinearPart& part) { return part.scale != 1; };
  if (std::any_of(parts.begin(), parts.end(), scaled)) {
    for (size_t i = 0; i < parts.size(); ++i) scale.insert(scale.end(), size_t(views[i].size(0)), parts[i].scale);
    scale_ = Parameter(context, scale);
    scale_columns_ = context.kernels.resolve(scale_columns_op(), {.dim = out_});
  }
  size_t begin = 0;
  for (const size_t end : runs_of(context, views)) {
    const std::vector<TensorView> run(views.begin() + std::ptrdiff_t(begin), views.begin() + std::ptrdiff_t(end));
    Segment segment;
    segment.first = rows_of(std::span(views).first(begin));
    const DType stored = packed_dtype(context, run[0]);
    segment.kernel = context.kernels.resolve(linear_op(), {.in = in_,
                                                           .out = rows_of(run),
                                                           .x = context.dtype,
                                                           .weight = stored,
                                                           .int8 = context.int8 && is_block(stored)});
    const WeightLayout layout = segment.kernel.layout;
    std::shared_ptr<const PackedMatrices>& packed =
        context.packed[key_of(layout, std::span(parts).subspan(begin, end - begin))];
    if (!packed) packed = std::make_shared<const PackedMatrices>(pack_matrices(context, layout, {run}));
    segment.packed = packed;
    segments_.push_back(std::move(segment));
    begin = end;
  }
}

const WeightView& Linear::weight() const {
  MEDLEY_CHECK(segments_.size() == 1);
  return segments_[0].packed->view;
}

void Linear::run(const TensorView& x, const TensorView& y, bool accumulate, ExecContext& exec) const {
  for (const Segment& segment : segments_) {
    const WeightView& weight = segment.packed->view;
    segment.kernel({.x = x,
                    .weight = weight,
                    .bias = bias_.empty() ? nullptr : bias_.data() + segment.first,
                    .y = weight.n == out_ ? y : y.slice(1, segment.first, weight.n),
                    .accumulate = accumulate},
                   exec);
  }
}

void Linear::operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  run(x, y, false, exec);
  if (!scale_.empty()) scale_columns_({.scale = scale_.data(), .y = y}, exec);
}

void Linear::accumulate(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  MEDLEY_CHECK(bias_.empty() && scale_.empty());
  run(x, y, true, exec);
}

ExpertLinear::ExpertLinear(LoadContext& context, const std::vector<std::vector<TensorView>>& slots,
                           const std::vector<float>& bias)
    : slots_(int64_t(slots.size())) {
  const std::vector<TensorView>& parts = slots.at(0);
  const int64_t rows = rows_of(parts);
  MEDLEY_CHECK(bias.empty() || int64_t(bias.size()) == slots_ * rows);
  size_t begin = 0;
  for (const size_t end : runs_of(context, parts)) {
    const auto run_of = [&](const std::vector<TensorView>& of) {
      return std::vector<TensorView>(of.begin() + std::ptrdiff_t(begin), of.begin() + std::ptrdiff_t(end));
    };
    Segment segment;
    segment.first = rows_of(std::span(parts).first(begin));
    GroupedLinearDesc desc;
    desc.slots = slots_;
    desc.x = context.dtype;
    desc.in = parts[0].size(1), desc.out = rows_of(run_of(parts));
    desc.weight = packed_dtype(context, parts[begin]);
    desc.int8 = context.int8 && is_block(desc.weight);
    segment.kernel = context.kernels.resolve(grouped_linear_op(), desc);
    desc_ = desc;
    std::vector<std::vector<TensorView>> runs;
    for (const std::vector<TensorView>& slot : slots) runs.push_back(run_of(slot));
    segment.packed = pack_matrices(context, segment.kernel.layout, runs);
    std::vector<float> part;
    for (int64_t slot = 0; slot < slots_ && !bias.empty(); ++slot) {
      const auto at = bias.begin() + slot * rows + segment.first;
      part.insert(part.end(), at, at + desc.out);
    }
    segment.bias = Parameter(context, part);
    segments_.push_back(std::move(segment));
    begin = end;
  }
}

void ExpertLinear::operator()(GroupedLinearArgs args, ExecContext& exec) const {
  const TensorView y = args.y;
  for (const Segment& segment : segments_) {
    args.weight = segment.packed.view;
    args.bias = segment.bias.data();
    args.y = segments_.size() == 1 ? y : y.slice(1, segment.first, args.weight.n);
    segment.kernel(args, exec);
  }
}

void ExpertLinear::find_gated(LoadContext& context, Activation activation, DType y) {
  if (segments_.size() != 1) return;
  GatedGroupedLinearDesc desc{desc_, activation, y};
  const Kernel<GatedGroupedLinearArgs> found = context.kernels.find(gated_grouped_linear_op(), desc);
  if (found.run != nullptr && found.layout == segments_[0].kernel.layout) gated_ = found;
}

void ExpertLinear::gated(GatedGroupedLinearArgs args, ExecContext& exec) const {
  args.weight = segments_[0].packed.view;
  args.bias = segments_[0].bias.data();
  gated_(args, exec);
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
