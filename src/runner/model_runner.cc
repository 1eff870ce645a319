#include "runner/model_runner.h"

#include <algorithm>
#include <bit>

#include "kernels/sample.h"

namespace medley {
namespace {

// Rows of a padded step: few sizes, so that few graphs are recorded, and not many pads.
int64_t padded_rows(int64_t rows) {
  if (rows <= 8) return int64_t(std::bit_ceil(uint64_t(rows)));
  const int64_t step = rows <= 32 ? 8 : rows <= 128 ? 16 : 64;
  return (rows + step - 1) / step * step;
}

int32_t logits_count(const PlanRow& row) {
  if (row.logits == LogitsWanted::all) return row.new_tokens;
  return row.sample || row.logits == LogitsWanted::last ? 1 : 0;
}

// Without ids: all of the plan's are known, or will be.
std::vector<RowLogits> wanted_logits(const StepPlan& plan, std::span<const int32_t> token_ids = {}) {
  std::vector<RowLogits> rows;
  int64_t total = 0;
  for (const PlanRow& row : plan.rows) {
    const int32_t first = row.new_tokens - logits_count(row);
    RowLogits wanted{row.request, total, 0, row.computed + first};
    wanted.count = logits_count(row);
    for (int32_t i = row.new_tokens; !token_ids.empty() && i > first && token_ids[size_t(row.first_token + i - 1)] < 0;
         --i)
      --wanted.count;  // a draft's unknown tokens are the last ones
    total += wanted.count;
    rows.push_back(wanted);
  }
  return rows;
}

}  // namespace

ModelRunner::ModelRunner(Model& model, const ArenaGeometry& geometry, ThreadPool& threads, Device device, bool graphs)
    : model_(model),
      device_(device),
      graphs_(graphs && device == Device::cuda && model.decode_can_be_recorded()),
      stream_(device),
      arena_(size_t(geometry.bytes()), device),
      workspace_(device),
      branch_(device == Device::cpu ? nullptr : std::make_unique<SideBranch>(device)),
      exec_{threads, workspace_, stream_.get(), branch_.get()},
      tables_(device) {
#ifndef NDEBUG
  graphs_ = false;  // the workspace poisons what it hands out, outside of the stream
#endif
  KernelSelector kernels(device);
  gather_ = kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
  step_.groups.resize(model.cache_specs().size());
}

ModelRunner::Shape ModelRunner::shape_of(const StepPlan& plan, const Pass& pass) const {
  MEDLEY_CHECK(plan.groups.size() == step_.groups.size());
  Shape shape{.tokens = int64_t(plan.token_ids.size()), .rows = int64_t(plan.rows.size())};
  for (const RowLogits& row : pass.logits) shape.logits += row.count;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    int64_t width = 1;
    const std::vector<int32_t>& offsets = plan.groups[g].block_offsets;
    for (size_t r = 1; r < offsets.size(); ++r) width = std::max<int64_t>(width, offsets[r] - offsets[r - 1]);
    shape.table_width.push_back(width);
  }
  return shape;
}

void ModelRunner::pad(Shape& shape) const {
  shape.tokens = shape.rows = shape.logits = padded_rows(shape.rows);
  constexpr int64_t least_context = 512;
  shape.context = least_context;
  for (const StepRow& row : step_.rows) shape.context = std::max<int64_t>(shape.context, row.computed + row.new_tokens);
  shape.context = int64_t(std::bit_ceil(uint64_t(shape.context)));
  for (int64_t& width : shape.table_width) width = int64_t(std::bit_ceil(uint64_t(width)));
}

// What the tables of a step take, one by one aligned.
size_t ModelRunner::table_bytes(const Shape& shape) const {
  const auto aligned = [](int64_t bytes) { return size_t(bytes) + StepBuffer::alignment; };
  size_t bytes = 4 * aligned(shape.tokens * 4) + 2 * aligned(shape.rows * 4 + 4);
  for (size_t g = 0; g < step_.groups.size(); ++g) {
    const KvCacheSpec& spec = model_.cache_specs()[g];
    bytes += spec.paged() ? aligned(shape.rows * shape.table_width[g] * 4) + aligned(shape.tokens * 8)
                          : 2 * aligned(spec.num_layers * shape.rows * 4);
  }
  return bytes;
}

void ModelRunner::build_rows(const StepPlan& plan, const Pass& pass, const Shape& shape) {
  const auto ids = tables_.add_i32({shape.tokens}), positions = tables_.add_i32({shape.tokens});
  const auto slots = tables_.add_i32({shape.tokens});
  const auto offsets = tables_.add_i32({shape.rows + 1}), computed = tables_.add_i32({shape.rows});
  // Pads come after the last row's end. On the host, where only launches are shaped, each is a row of one token.
  std::fill(ids.values.begin(), ids.values.end(), 0);
  std::fill(positions.values.begin(), positions.values.end(), 0);
  std::fill(computed.values.begin(), computed.values.end(), 0);
  std::fill(slots.values.begin(), slots.values.end(), -1);
  std::copy(pass.token_ids.begin(), pass.token_ids.end(), ids.values.begin());
  int32_t end = 0;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    MEDLEY_CHECK(row.first_token == end && row.new_tokens > 0);
    offsets.values[r] = row.first_token;
    computed.values[r] = row.computed;
    end += row.new_tokens;
    for (int32_t i = 0; i < row.new_tokens; ++i) {
      const auto token = size_t(row.first_token + i);
      positions.values[token] = row.computed + i + pass.shift;
      if (pass.shift > 0 || pass.token_ids[token] != token_of_last_step) continue;
      MEDLEY_CHECK(last_tokens_ && row.sampling_slot < last_tokens_.size(0));
      ids.values[token] = 0;
      slots.values[token] = row.sampling_slot;
    }
  }
  MEDLEY_CHECK(end == int32_t(plan.token_ids.size()));
  std::fill(offsets.values.begin() + int64_t(plan.rows.size()), offsets.values.end(), end);
  for (int64_t r = int64_t(plan.rows.size()); r < shape.rows; ++r) step_.rows.push_back({int32_t(r), 1, 0});
  step_.num_rows = shape.rows;
  step_.num_tokens = shape.tokens;
  step_.launch_context = shape.context;
  step_.token_ids = ids.view;
  token_slots_ = slots.view;
  step_.positions = positions.view;
  step_.row_offsets = offsets.view;
  step_.computed = computed.view;
}

void ModelRunner::build_pages(const StepPlan& plan, const Shape& shape, size_t g) {
  const KvCacheSpec& spec = model_.cache_specs()[g];
  const PlanGroup& from = plan.groups[g];
  StepGroup& group = step_.groups[g];
  const int64_t per_block = spec.tokens_per_block, width = shape.table_width[g];
  const auto table = tables_.add_i32({shape.rows, width});
  const auto slots = tables_.add_i64({shape.tokens});
  std::fill(table.values.begin(), table.values.end(), -1);
  std::fill(slots.values.begin(), slots.values.end(), -1);
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlanRow& row = plan.rows[r];
    const int32_t* blocks = from.blocks.data() + from.block_offsets[r];
    const int64_t count = from.block_offsets[r + 1] - from.block_offsets[r];
    std::copy_n(blocks, count, table.values.begin() + int64_t(r) * width);
    for (int64_t i = 0; i < row.new_tokens; ++i) {
      const int64_t position = row.computed + i;
      MEDLEY_CHECK(position / per_block < count && blocks[position / per_block] >= 0);
      slots.values[size_t(row.first_token + i)] = blocks[position / per_block] + position % per_block;
    }
  }
  group.block_table = table.view;
  group.slot_mapping = slots.view;
  group.tokens_per_block = spec.tokens_per_block;
  group.row_bytes = spec.row_bytes;
}

void ModelRunner::build_states(const StepPlan& plan, const Shape& shape, size_t g) {
  const int64_t layers = model_.cache_specs()[g].num_layers, rows = int64_t(plan.rows.size());
  const auto fill = [&](const std::vector<int32_t>& from, TensorView& view) {
    const auto table = tables_.add_i32({layers, shape.rows});
    std::fill(table.values.begin(), table.values.end(), -1);
    for (int64_t layer = 0; layer < layers; ++layer)
      std::copy_n(from.begin() + layer * rows, rows, table.values.begin() + layer * shape.rows);
    view = table.view;
  };
  fill(plan.groups[g].state_in, step_.groups[g].state_in);
  fill(plan.groups[g].state_out, step_.groups[g].state_out);
}

void ModelRunner::build_groups(const StepPlan& plan, const Shape& shape) {
  for (size_t g = 0; g < step_.groups.size(); ++g) {
    step_.groups[g].base = arena_.data();
    if (model_.cache_specs()[g].paged()) {
      build_pages(plan, shape, g);
    } else {
      build_states(plan, shape, g);
    }
  }
}

void ModelRunner::build_logits_rows(const StepPlan& plan, const Pass& pass, const Shape& shape) {
  const auto tokens = tables_.add_i32({shape.logits});
  std::fill(tokens.values.begin(), tokens.values.end(), 0);
  size_t next = 0;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const RowLogits& wanted = pass.logits[r];
    const int64_t first = plan.rows[r].first_token + wanted.position - plan.rows[r].computed;
    for (int64_t i = 0; i < wanted.count; ++i) tokens.values[next++] = int32_t(first + i);
  }
  step_.logits_tokens = tokens.view;
}

void ModelRunner::build_tables(const StepPlan& plan, const Pass& pass, const Shape& shape) {
  if (tables_.begin(table_bytes(shape))) forget_recordings();
  build_rows(plan, pass, shape);
  build_groups(plan, shape);
  build_logits_rows(plan, pass, shape);
  tables_.send(stream_.get());
}

// An address in them has changed. One of them may be running.
void ModelRunner::forget_recordings() {
  if (recorded_.empty()) return;
  synchronize(stream_.get());
  recorded_.clear();
}

// A view of `buffer`, which grows when a step is larger than any before it.
TensorView ModelRunner::grown(Buffer& buffer, int64_t rows, int64_t width) {
  const auto bytes = size_t(rows * width) * sizeof(float);
  if (buffer.bytes() < bytes) {
    forget_recordings();
    buffer = Buffer(std::max(bytes, buffer.bytes() * 2), device_);
  }
  return TensorView(buffer.data(), DType::f32, {rows, width}, device_);
}

void ModelRunner::compute_logits(const TensorView& hidden, const TensorView& chosen) {
  if (step_logits_.size(0) == 0) return;
  gather_({.x = hidden, .rows = step_.logits_tokens, .y = chosen}, exec_);
  model_.logits(chosen, step_logits_, exec_);
}

void ModelRunner::compute(const TensorView& hidden, const TensorView& chosen) {
  if (last_tokens_) take_tokens({step_.token_ids, token_slots_, last_tokens_}, exec_);
  model_.forward(step_, hidden, exec_);
  compute_logits(hidden, chosen);
}

void ModelRunner::set_last_tokens(const TensorView& last_tokens) {
  if (last_tokens.data != last_tokens_.data) forget_recordings();
  last_tokens_ = last_tokens;
}

void ModelRunner::start(const StepPlan& plan, const TensorView& last_tokens) {
  set_last_tokens(last_tokens);
  step_.rows.clear();
  drafts_ = 0;
  bool decode = true;
  for (const PlanRow& row : plan.rows) {
    step_.rows.push_back({row.first_token, row.new_tokens, row.computed});
    decode = decode && row.new_tokens == 1 && row.computed > 0 && logits_count(row) == 1;
  }
  logits_rows_ = wanted_logits(plan);
  const Pass pass{.token_ids = plan.token_ids, .logits = logits_rows_};
  Shape shape = shape_of(plan, pass);
  const bool record = graphs_ && decode;
  if (record) pad(shape);
  build_tables(plan, pass, shape);

  const int64_t width = model_.info().hidden_size;
  const TensorView hidden = grown(hidden_, shape.tokens, width), chosen = grown(chosen_, shape.logits, width);
  step_logits_ = grown(logits_, shape.logits, model_.info().vocab_size);
  if (!record) return compute(hidden, chosen);
  // The first step of a shape runs as it is, which loads its kernels and takes their memory; the second is recorded.
  const auto [at, first] = recorded_.try_emplace(shape);
  if (first) return compute(hidden, chosen);
  if (!at->second) at->second = Graph::record(stream_.get(), [&] { compute(hidden, chosen); });
  at->second.launch(stream_.get());
}

// The logits that were computed, without the pads', where the host reads them.
StepLogits ModelRunner::to_host(std::vector<RowLogits> rows) {
  StepLogits result;
  const int64_t wanted = rows.empty() ? 0 : rows.back().first + rows.back().count;
  result.rows = std::move(rows);
  result.logits = step_logits_.slice(0, 0, wanted);
  if (device_ == Device::cpu || wanted == 0) return result;
  if (host_logits_.bytes() < result.logits.bytes())
    host_logits_ = PinnedBuffer(std::max(result.logits.bytes(), 2 * host_logits_.bytes()), device_);
  copy_bytes(host_logits_.data(), result.logits.data, result.logits.bytes(), stream_.get());
  result.logits = TensorView(host_logits_.data(), DType::f32, {wanted, model_.info().vocab_size});
  return result;
}

// Every row's tokens one place on: the first leaves, the following one joins.
void ModelRunner::shift_tokens(const StepPlan& plan, std::span<const int32_t> following) {
  MEDLEY_CHECK(following.size() == plan.rows.size());
  if (drafts_ == 0) draft_ids_ = plan.token_ids;
  for (size_t r = 0; r < following.size(); ++r) {
    const auto first = draft_ids_.begin() + plan.rows[r].first_token;
    std::shift_left(first, first + plan.rows[r].new_tokens, 1);
    first[plan.rows[r].new_tokens - 1] = following[r];
  }
}

StepLogits ModelRunner::draft(const StepPlan& plan, std::span<const int32_t> following) {
  shift_tokens(plan, following);
  step_.rows.clear();  // without the pads
  for (const PlanRow& row : plan.rows) step_.rows.push_back({row.first_token, row.new_tokens, row.computed});
  const Pass pass{draft_ids_, drafts_ + 1, wanted_logits(plan, draft_ids_)};
  const Shape shape = shape_of(plan, pass);
  build_tables(plan, pass, shape);

  const int64_t width = model_.info().hidden_size;
  const Buffer& before = drafts_ == 0 ? hidden_ : drafted_[(drafts_ + 1) % 2];
  const TensorView previous(before.data(), DType::f32, {shape.tokens, width}, device_);
  const TensorView hidden = grown(drafted_[drafts_ % 2], shape.tokens, width);
  const TensorView chosen = grown(chosen_, shape.logits, width);
  step_logits_ = grown(logits_, shape.logits, model_.info().vocab_size);
  model_.draft(step_, previous, hidden, drafts_++, exec_);
  compute_logits(hidden, chosen);
  return to_host(pass.logits);
}

}  // namespace medley
