// paged_attention: cuts the step's queries into tiles that share their keys, and their context into splits that
// threads can share.
//
// Where a split ends depends on the query's own position alone (split_of), and splits are merged in ascending order,
// whether one thread does them in turn or several do them at once: the same bits either way.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/attention_tiles.h"

namespace medley {
namespace attention {
namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

// Keys of one split for a query at `position`: at most 16 splits, so that partial results stay small, and no less than
// 512 keys in one, so that merging costs nothing.
int64_t split_of(int64_t position) {
  return std::max<int64_t>(512, int64_t(std::bit_ceil(uint64_t(position + 1))) / 16);
}

// Query vectors that share their keys: some heads of one key head, for some tokens of a row in which split_of is the
// same.
struct Unit {
  int64_t row, token, tokens, position, head, heads;
  int64_t split;        // keys in a split
  int64_t first_split;  // the first that any of its queries sees
  int64_t splits;       // how many
  int64_t partial;      // index of its first split's partial result

  int vectors() const { return int(tokens * heads); }
};

struct Plan {
  const PagedAttentionArgs* args = nullptr;
  Scoring scoring;
  BlockFunction block = nullptr;

  int64_t begin_of(int64_t position) const {
    return args->window > 0 ? std::max<int64_t>(0, position - args->window + 1) : 0;
  }
};

// Calls f(unit) for every unit of the step, in order.
template <class F>
void for_each_unit(const Plan& plan, F&& f) {
  const PagedAttentionArgs& a = *plan.args;
  const int64_t heads = a.q.size(1), group = heads / a.kv_heads;
  const int64_t unit_heads = std::min<int64_t>(group, max_rows), unit_tokens = std::max<int64_t>(1, max_rows / group);
  const int32_t* offsets = a.rows.row_offsets.as<int32_t>();
  int64_t partial = 0;
  for (int64_t row = 0; row < a.rows.num_rows; ++row) {
    const int64_t computed = a.rows.computed.as<int32_t>()[row], count = offsets[row + 1] - offsets[row];
    for (int64_t i = 0; i < count;) {
      const int64_t position = computed + i, split = split_of(position);
      int64_t tokens = 1;
      while (tokens < std::min(unit_tokens, count - i) && split_of(position + tokens) == split) ++tokens;
      Unit unit{row, offsets[row] + i, tokens, position, 0, 0, split, plan.begin_of(position) / split, 0, 0};
      unit.splits = (position + tokens - 1) / split + 1 - unit.first_split;
      for (int64_t kv = 0; kv < a.kv_heads; ++kv)
        for (int64_t h = 0; h < group; h += unit_heads) {
          unit.head = kv * group + h;
          unit.heads = std::min(unit_heads, group - h);
          unit.partial = partial;
          partial += unit.splits;
          f(unit);
        }
      i += tokens;
    }
  }
}

// What one worker computes with: the queries, and two running softmaxes.
struct Scratch {
  float *q, *scores, *shrink;
  struct State {
    float *sum, *highest, *total;
  } part, whole;

  static int64_t state_floats(int64_t v_dim) { return max_rows * (padded(v_dim) + 2); }
  static int64_t floats(int64_t k_dim, int64_t v_dim) {
    return max_rows * (padded(k_dim) + block_keys + 1) + 2 * state_floats(v_dim);
  }
  static State state_at(float* memory, int64_t v_dim) {
    return {memory, memory + max_rows * padded(v_dim), memory + max_rows * (padded(v_dim) + 1)};
  }
  Scratch(float* memory, int64_t k_dim, int64_t v_dim) {
    q = memory;
    scores = q + max_rows * padded(k_dim);
    shrink = scores + max_rows * block_keys;
    float* states = shrink + max_rows;
    part = state_at(states, v_dim);
    whole = state_at(states + state_floats(v_dim), v_dim);
  }
};

void clear(const Scratch::State& state, int vectors, int64_t v_dim) {
  std::fill_n(state.sum, vectors * padded(v_dim), 0.0f);
  std::fill_n(state.highest, vectors, nothing);
  std::fill_n(state.total, vectors, 0.0f);
}

// Merges `part` into `whole`, where `whole` holds the splits before it.
void merge(const Scratch::State& whole, const Scratch::State& part, int vectors, int64_t v_dim) {
  const int64_t stride = padded(v_dim);
  for (int r = 0; r < vectors; ++r) {
    if (part.highest[r] == nothing) continue;  // outside the window: no key seen
    const float highest = std::max(whole.highest[r], part.highest[r]);
    const float old_share = std::exp(whole.highest[r] - highest), part_share = std::exp(part.highest[r] - highest);
    float *to = whole.sum + r * stride, *from = part.sum + r * stride;
    for (int64_t i = 0; i < stride; ++i) to[i] = to[i] * old_share + from[i] * part_share;
    whole.total[r] = whole.total[r] * old_share + part.total[r] * part_share;
    whole.highest[r] = highest;
  }
}

// The block's pointers, walking the table once; and what each query sees of it.
void fill_block(const Plan& plan, const Unit& unit, int64_t base, int64_t begin, int64_t end, Block& block) {
  const PagedAttentionArgs& a = *plan.args;
  const PagedCache& cache = a.cache;
  const int64_t element = int64_t(size_of(cache.dtype)), kv = unit.head / (a.q.size(1) / a.kv_heads);
  const int64_t k_bytes = (a.k_offset + kv * a.q.size(2)) * element, v_bytes = (a.v_offset + kv * a.v_dim) * element;
  const int32_t* table = cache.block_table.row<int32_t>(unit.row);
  block.begin = int(begin - base);
  block.end = int(end - base);
  int64_t page = begin / cache.tokens_per_block, token = begin % cache.tokens_per_block;
  for (int j = block.begin; j < block.end;) {
    const std::byte* row = cache.base + (table[page] + token) * cache.row_bytes;
    const int stop = int(std::min<int64_t>(block.end, j + cache.tokens_per_block - token));
    for (; j < stop; ++j, row += cache.row_bytes) {
      block.k[j] = row + k_bytes;
      block.rest[j] = nullptr;
      block.v[j] = row + v_bytes;
    }
    ++page;
    token = 0;
  }
  int r = 0;
  for (int64_t t = 0; t < unit.tokens; ++t) {
    const int64_t position = unit.position + t;
    const auto first = int32_t(std::clamp(plan.begin_of(position) - base, int64_t(0), int64_t(block_keys)));
    const auto last = int32_t(std::clamp(position + 1 - base, int64_t(0), int64_t(block_keys)));
    for (int64_t h = 0; h < unit.heads; ++h, ++r) {
      block.first[r] = first;
      block.last[r] = last;
    }
  }
}

void load_queries(const Plan& plan, const Unit& unit, float* q) {
  const PagedAttentionArgs& a = *plan.args;
  const int64_t k_dim = a.q.size(2);
  for (int64_t t = 0; t < unit.tokens; ++t)
    for (int64_t h = 0; h < unit.heads; ++h) {
      const float* from = a.q.row<float>(unit.token + t) + (unit.head + h) * a.q.strides[1];
      std::copy_n(from, k_dim, q);
      std::fill(q + k_dim, q + padded(k_dim), 0.0f);
      q += padded(k_dim);
    }
}

// One split of a unit, whose queries are loaded, into `state`.
void attend_split(const Plan& plan, const Unit& unit, int64_t split, const Scratch& scratch,
                  const Scratch::State& state) {
  const PagedAttentionArgs& a = *plan.args;
  clear(state, unit.vectors(), a.v_dim);
  const Rows rows{unit.vectors(), a.q.size(2),   0,           a.v_dim,        scratch.q,
                  state.sum,      state.highest, state.total, scratch.scores, scratch.shrink};
  const int64_t begin = std::max(plan.begin_of(unit.position), split * unit.split);
  const int64_t end = std::min(unit.position + unit.tokens, (split + 1) * unit.split);
  Block blocks[2];
  const auto fill = [&](int64_t base, Block& block) {
    fill_block(plan, unit, base, std::max(base, begin), std::min(base + block_keys, end), block);
  };
  int64_t base = begin / block_keys * block_keys;
  fill(base, blocks[0]);
  for (int turn = 0; base < end; base += block_keys, turn ^= 1) {
    const bool more = base + block_keys < end;
    if (more) fill(base + block_keys, blocks[turn ^ 1]);
    plan.block(rows, blocks[turn], more ? &blocks[turn ^ 1] : nullptr, plan.scoring);
  }
}

template <class Y>
void finish(const Plan& plan, const Unit& unit, const Scratch::State& state) {
  const PagedAttentionArgs& a = *plan.args;
  int r = 0;
  for (int64_t t = 0; t < unit.tokens; ++t)
    for (int64_t h = 0; h < unit.heads; ++h, ++r) {
      float share = 1, total = state.total[r];
      if (a.sinks != nullptr) {
        const float sink = a.sinks[unit.head + h], highest = std::max(state.highest[r], sink);
        share = std::exp(state.highest[r] - highest);
        total = total * share + std::exp(sink - highest);
      }
      const float* sum = state.sum + r * padded(a.v_dim);
      const float factor = share / total;
      Y* y = a.y.row<Y>(unit.token + t) + (unit.head + h) * a.y.strides[1];
      for (int64_t i = 0; i < a.v_dim; ++i) y[i] = Y(sum[i] * factor);
    }
}

void finish(const Plan& plan, const Unit& unit, const Scratch::State& state) {
  if (plan.args->y.dtype == DType::bf16) return finish<bf16>(plan, unit, state);
  finish<float>(plan, unit, state);
}

void run(const PagedAttentionArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const Plan plan{&a, {a.scale, a.softcap}, simd::attention_block(a.cache.dtype)};
  int64_t num_units = 0, num_splits = 0;
  for_each_unit(plan, [&](const Unit& unit) {
    ++num_units;
    num_splits += unit.splits;
  });
  Unit* units = reinterpret_cast<Unit*>(context.workspace.alloc(DType::u8, {num_units * int64_t(sizeof(Unit))}).data);
  num_units = 0;
  for_each_unit(plan, [&](const Unit& unit) { units[num_units++] = unit; });

  const int64_t k_dim = a.q.size(2), v_dim = a.v_dim, workers = context.threads.size();
  const TensorView memory = context.workspace.alloc(DType::f32, {workers, Scratch::floats(k_dim, v_dim)});
  // Few long contexts (decode): threads share a context, and partial results go through memory.
  if (num_units < 2 * workers && num_splits > num_units) {
    const TensorView partials = context.workspace.alloc(DType::f32, {num_splits, Scratch::state_floats(v_dim)});
    const auto partial = [&](int64_t index) { return Scratch::state_at(partials.row<float>(index), v_dim); };
    context.threads.parallel_for(num_splits, [&](int64_t task, int worker) {
      const Unit* unit = units;
      while (task >= unit->partial + unit->splits) ++unit;
      const Scratch scratch(memory.row<float>(worker), k_dim, v_dim);
      load_queries(plan, *unit, scratch.q);
      attend_split(plan, *unit, unit->first_split + task - unit->partial, scratch, partial(task));
    });
    context.threads.parallel_for(num_units, [&](int64_t task, int) {
      const Unit& unit = units[task];
      for (int64_t s = 1; s < unit.splits; ++s)
        merge(partial(unit.partial), partial(unit.partial + s), unit.vectors(), v_dim);
      finish(plan, unit, partial(unit.partial));
    });
    return;
  }
  context.threads.parallel_for(num_units, [&](int64_t task, int worker) {
    const Unit& unit = units[task];
    const Scratch scratch(memory.row<float>(worker), k_dim, v_dim);
    load_queries(plan, unit, scratch.q);
    attend_split(plan, unit, unit.first_split, scratch, scratch.whole);
    for (int64_t s = 1; s < unit.splits; ++s) {
      attend_split(plan, unit, unit.first_split + s, scratch, scratch.part);
      merge(scratch.whole, scratch.part, unit.vectors(), v_dim);
    }
    finish(plan, unit, scratch.whole);
  });
}

std::string supports(const PagedAttentionDesc& desc) {
  return desc.cache == DType::f32 || desc.cache == DType::bf16 ? "" : "takes caches of f32 or bf16";
}

}  // namespace
}  // namespace attention

namespace simd {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention{
    "simd.paged_attention", Level::simd, attention::supports, attention::run};
}

}  // namespace medley
