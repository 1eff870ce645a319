#include "runner/model_runner.h"

#include <algorithm>

namespace medley {
namespace {

TensorView view_of(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  return TensorView(values.data(), DType::i32, shape);
}

// A view of `buffer`, which grows when a step is larger than any before it.
TensorView grown(Buffer& buffer, int64_t rows, int64_t width) {
  const auto bytes = size_t(rows * width) * sizeof(float);
  if (buffer.bytes() < bytes) buffer = Buffer(std::max(bytes, buffer.bytes() * 2));
  return TensorView(buffer.data(), DType::f32, {rows, width});
}

}  // namespace

ModelRunner::ModelRunner(Model& model, const ArenaGeometry& geometry, ThreadPool& threads)
    : model_(model), arena_(size_t(geometry.bytes())), exec_{threads, workspace_}, groups_(model.cache_specs().size()) {
  KernelSelector kernels(Device::cpu);
  gather_ = kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
  step_.groups.resize(groups_.size());
}

void ModelRunner::build_rows(const StepPlan& plan) {
  token_ids_ = plan.token_ids;
  positions_.clear();
  row_offsets_.assign(1, 0);
  computed_.clear();
  step_.rows.clear();
  for (const PlanRow& row : plan.rows) {
    MEDLEY_CHECK(row.first_token == row_offsets_.back() && row.new_tokens > 0);
    step_.rows.push_back({row.first_token, row.new_tokens, row.computed});
    computed_.push_back(row.computed);
    row_offsets_.push_back(row.first_token + row.new_tokens);
    for (int32_t i = 0; i < row.new_tokens; ++i) positions_.push_back(row.computed + i);
  }
  step_.num_rows = int64_t(plan.rows.size());
  step_.num_tokens = row_offsets_.back();
  MEDLEY_CHECK(step_.num_tokens == int64_t(token_ids_.size()));
  step_.token_ids = view_of(token_ids_, {step_.num_tokens});
  step_.positions = view_of(positions_, {step_.num_tokens});
  step_.row_offsets = view_of(row_offsets_, {step_.num_rows + 1});
  step_.computed = view_of(computed_, {step_.num_rows});
}

void ModelRunner::build_groups(const StepPlan& plan) {
  MEDLEY_CHECK(plan.groups.size() == groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvCacheSpec& spec = model_.cache_specs()[g];
    const PlanGroup& from = plan.groups[g];
    GroupBuffers& buffers = groups_[g];
    StepGroup& group = step_.groups[g];
    group.base = arena_.data();
    if (!spec.paged()) {
      buffers.state_in = from.state_in;
      buffers.state_out = from.state_out;
      group.state_in = view_of(buffers.state_in, {spec.num_layers, step_.num_rows});
      group.state_out = view_of(buffers.state_out, {spec.num_layers, step_.num_rows});
      continue;
    }
    const int64_t per_block = spec.tokens_per_block;
    int64_t width = 1;
    for (int64_t r = 0; r < step_.num_rows; ++r)
      width = std::max<int64_t>(width, from.block_offsets[size_t(r) + 1] - from.block_offsets[size_t(r)]);
    buffers.block_table.assign(size_t(step_.num_rows * width), -1);
    buffers.slot_mapping.clear();
    for (int64_t r = 0; r < step_.num_rows; ++r) {
      const StepRow& row = step_.rows[size_t(r)];
      const int32_t* blocks = from.blocks.data() + from.block_offsets[size_t(r)];
      const int64_t count = from.block_offsets[size_t(r) + 1] - from.block_offsets[size_t(r)];
      std::copy_n(blocks, count, buffers.block_table.begin() + r * width);
      for (int64_t position = row.computed; position < row.computed + row.new_tokens; ++position) {
        MEDLEY_CHECK(position / per_block < count && blocks[position / per_block] >= 0);
        buffers.slot_mapping.push_back(blocks[position / per_block] + position % per_block);
      }
    }
    group.block_table = view_of(buffers.block_table, {step_.num_rows, width});
    group.slot_mapping = TensorView(buffers.slot_mapping.data(), DType::i64, {step_.num_tokens});
    group.tokens_per_block = spec.tokens_per_block;
    group.row_bytes = spec.row_bytes;
  }
}

void ModelRunner::build_logits_rows(const StepPlan& plan, StepLogits& wanted) {
  logits_tokens_.clear();
  for (const PlanRow& row : plan.rows) {
    const bool all = row.logits == LogitsWanted::all;
    const bool any = all || row.sample || row.logits == LogitsWanted::last;
    const int32_t count = all ? row.new_tokens : any ? 1 : 0;
    const int32_t first = row.new_tokens - count;
    wanted.rows.push_back({row.request, int64_t(logits_tokens_.size()), 0, row.computed + first});
    for (int32_t i = row.first_token + first; i < row.first_token + row.new_tokens; ++i) {
      if (token_ids_[size_t(i)] < 0) break;  // a draft's: unknown are the last ones
      logits_tokens_.push_back(i);
      ++wanted.rows.back().count;
    }
  }
  step_.logits_tokens = view_of(logits_tokens_, {int64_t(logits_tokens_.size())});
}

void ModelRunner::compute_logits(const TensorView& hidden, StepLogits& result) {
  const int64_t wanted = step_.logits_tokens.size(0);
  result.logits = grown(logits_, wanted, model_.info().vocab_size);
  if (wanted == 0) return;
  const TensorView chosen = grown(chosen_, wanted, hidden.size(1));
  gather_({.x = hidden, .rows = step_.logits_tokens, .y = chosen}, exec_);
  model_.logits(chosen, result.logits, exec_);
}

StepLogits ModelRunner::run(const StepPlan& plan) {
  StepLogits result;
  build_rows(plan);
  build_groups(plan);
  build_logits_rows(plan, result);
  drafts_ = 0;
  const TensorView hidden = grown(hidden_, step_.num_tokens, model_.info().hidden_size);
  model_.forward(step_, hidden, exec_);
  compute_logits(hidden, result);
  return result;
}

// Every row's tokens one place on: the first leaves, the following one joins.
void ModelRunner::shift_tokens(std::span<const int32_t> following) {
  MEDLEY_CHECK(int64_t(following.size()) == step_.num_rows);
  for (size_t r = 0; r < following.size(); ++r) {
    const auto first = token_ids_.begin() + step_.rows[r].first_token;
    std::shift_left(first, first + step_.rows[r].new_tokens, 1);
    first[step_.rows[r].new_tokens - 1] = following[r];
  }
  for (int32_t& position : positions_) ++position;
}

StepLogits ModelRunner::draft(const StepPlan& plan, std::span<const int32_t> following) {
  StepLogits result;
  shift_tokens(following);
  build_logits_rows(plan, result);
  const int64_t tokens = step_.num_tokens, width = model_.info().hidden_size;
  const TensorView previous(hidden_.data(), DType::f32, {tokens, width});
  const TensorView hidden = grown(drafted_, tokens, width);
  model_.draft(step_, previous, hidden, drafts_++, exec_);
  std::swap(hidden_, drafted_);
  compute_logits(hidden, result);
  return result;
}

}  // namespace medley
