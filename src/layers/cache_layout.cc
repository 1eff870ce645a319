#include "layers/cache_layout.h"

#include <algorithm>

namespace medley {

CachePlace CacheLayout::add(const KvCacheSpec& spec) {
  const auto same = [&](const KvCacheSpec& other) {
    return other.kind == spec.kind && other.name == spec.name && other.row_bytes == spec.row_bytes &&
           other.window == spec.window;
  };
  const auto at = std::find_if(specs_.begin(), specs_.end(), same);
  if (at == specs_.end()) {
    specs_.push_back(spec);
    return {int(specs_.size()) - 1, 0};
  }
  return {int(at - specs_.begin()), at->num_layers++};
}

CachePlace CacheLayout::add_paged(const std::string& name, int64_t row_bytes, int32_t window,
                                  const std::string& shape) {
  return add({.kind = window > 0 ? CacheKind::window : CacheKind::full,
              .name = name,
              .num_layers = 1,
              .tokens_per_block = tokens_per_block_,
              .row_bytes = row_bytes,
              .window = window,
              .row_shape = shape});
}

CachePlace CacheLayout::add_state(const std::string& name, int64_t bytes, const std::string& shape) {
  return add({.kind = CacheKind::state, .name = name, .num_layers = 1, .row_bytes = bytes, .row_shape = shape});
}

RaggedRows ragged_rows(const Step& step) {
  RaggedRows rows{.row_offsets = step.row_offsets,
                  .computed = step.computed,
                  .num_rows = step.num_rows,
                  .num_tokens = step.num_tokens,
                  .max_context = step.launch_context};
  for (const StepRow& row : step.rows) {
    rows.max_new_tokens = std::max<int64_t>(rows.max_new_tokens, row.new_tokens);
    rows.max_context = std::max<int64_t>(rows.max_context, row.computed + row.new_tokens);
  }
  return rows;
}

RaggedRows ragged_rows(const Step& step, int64_t first_row, int64_t rows, ExecContext& exec) {
  if (first_row == 0 && rows == step.num_rows) return ragged_rows(step);
  RaggedRows part{.row_offsets = exec.workspace.alloc(DType::i32, {rows + 1}),
                  .computed = step.computed.slice(0, first_row, rows),
                  .num_rows = rows};
  rebase_offsets(step.row_offsets.slice(0, first_row, rows + 1), part.row_offsets, exec);
  const int32_t first_token = step.rows[size_t(first_row)].first_token;
  for (int64_t r = 0; r < rows; ++r) {
    const StepRow& row = step.rows[size_t(first_row + r)];
    part.num_tokens = row.first_token + row.new_tokens - first_token;
    part.max_new_tokens = std::max<int64_t>(part.max_new_tokens, row.new_tokens);
    part.max_context = std::max<int64_t>(part.max_context, row.computed + row.new_tokens);
  }
  return part;
}

PagedCache paged_cache(const Step& step, CachePlace place, DType dtype) {
  const StepGroup& group = step.groups[size_t(place.group)];
  return {.base = group.base + place.layer * group.tokens_per_block * group.row_bytes,
          .dtype = dtype,
          .row_bytes = group.row_bytes,
          .tokens_per_block = group.tokens_per_block,
          .block_table = group.block_table,
          .slot_mapping = group.slot_mapping};
}

StateSlots state_slots(const Step& step, CachePlace place, int64_t offset_bytes) {
  const StepGroup& group = step.groups[size_t(place.group)];
  return {.base = group.base,
          .read = group.state_in.row<int32_t>(place.layer),
          .write = group.state_out.row<int32_t>(place.layer),
          .offset_bytes = offset_bytes};
}

}  // namespace medley
