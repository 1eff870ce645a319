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

// Some tokens of a row in which split_of is the same, some key heads, and some query heads of each: a group of at most
// max_rows query vectors shares the keys of one key head. Key heads are done together where that gives work enough for
// all threads, since their keys are neighbours in memory.
struct Unit {
  int64_t row, token, tokens, position;
  int64_t kv, kv_heads;  // key heads
  int64_t head, heads;   // query heads of each, counted from its first
  int64_t split;         // keys in a split
  int64_t first_split;   // the first that any of its queries sees
  int64_t splits;        // how many
  int64_t partial;       // index of its first split's partial result

  int group() const { return int(tokens * heads); }
  int vectors() const { return int(kv_heads) * group(); }
};

struct Plan {
  const PagedAttentionArgs* args = nullptr;
  Scoring scoring;
  BlockFunction block = nullptr;
  int64_t unit_kv_heads = 1;
  int64_t unit_rows = max_rows;  // query vectors of one key head

  int64_t group() const { return args->q.size(1) / args->kv_heads; }
  int64_t max_vectors() const { return unit_kv_heads * max_rows; }
  int64_t begin_of(int64_t position) const {
    return args->window > 0 ? std::max<int64_t>(0, position - args->window + 1) : 0;
  }
};

// Calls f(unit) for every unit of the step, in order.
template <class F>
void for_each_unit(const Plan& plan, F&& f) {
  const PagedAttentionArgs& a = *plan.args;
  const int64_t group = plan.group();
  const int64_t unit_heads = std::min(group, plan.unit_rows);
  const int64_t unit_tokens = std::max<int64_t>(1, plan.unit_rows / group);
  const int32_t* offsets = a.rows.row_offsets.as<int32_t>();
  int64_t partial = 0;
  for (int64_t row = 0; row < a.rows.num_rows; ++row) {
    const int64_t computed = a.rows.computed.as<int32_t>()[row], count = offsets[row + 1] - offsets[row];
    for (int64_t i = 0; i < count;) {
      const int64_t position = computed + i, split = split_of(position);
      int64_t tokens = 1;
      while (tokens < std::min(unit_tokens, count - i) && split_of(position + tokens) == split) ++tokens;
      const int64_t first_split = plan.begin_of(position) / split;
      const int64_t splits = (position + tokens - 1) / split + 1 - first_split;
      for (int64_t kv = 0; kv < a.kv_heads; kv += plan.unit_kv_heads)
        for (int64_t h = 0; h < group; h += unit_heads) {
          f(Unit{row, offsets[row] + i, tokens, position, kv, std::min(plan.unit_kv_heads, a.kv_heads - kv), h,
                 std::min(unit_heads, group - h), split, first_split, splits, partial});
          partial += splits;
        }
      i += tokens;
    }
  }
}

struct Count {
  int64_t units = 0, splits = 0;
};
Count count_units(const Plan& plan) {
  Count count;
  for_each_unit(plan, [&](const Unit& unit) {
    ++count.units;
    count.splits += unit.splits;
  });
  return count;
}

// What one worker computes with: the queries, and two running softmaxes.
struct Scratch {
  float *q, *scores, *shrink, *fresh;
  struct State {
    float *sum, *highest, *total;
  } part, whole;

  static int64_t state_floats(const Plan& plan) { return plan.max_vectors() * (padded(plan.args->v_dim) + 2); }
  static int64_t floats(const Plan& plan) {
    return plan.max_vectors() * padded(plan.args->q.size(2)) + max_rows * (block_keys + 2) + 2 * state_floats(plan);
  }
  static State state_at(const Plan& plan, float* memory) {
    float* highest = memory + plan.max_vectors() * padded(plan.args->v_dim);
    return {memory, highest, highest + plan.max_vectors()};
  }
  Scratch(const Plan& plan, float* memory) {
    q = memory;
    scores = q + plan.max_vectors() * padded(plan.args->q.size(2));
    shrink = scores + max_rows * block_keys;
    fresh = shrink + max_rows;
    float* states = fresh + max_rows;
    part = state_at(plan, states);
    whole = state_at(plan, states + state_floats(plan));
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
  const int32_t* table = cache.block_table.row<int32_t>(unit.row);
  block.begin = int(begin - base);
  block.end = int(end - base);
  int64_t page = begin / cache.tokens_per_block, token = begin % cache.tokens_per_block;
  for (int j = block.begin; j < block.end;) {
    const std::byte* row = cache.base + (table[page] + token) * cache.row_bytes;
    const int stop = int(std::min<int64_t>(block.end, j + cache.tokens_per_block - token));
    for (; j < stop; ++j, row += cache.row_bytes) {
      block.k[j] = block.v[j] = row;
      block.rest[j] = nullptr;
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

// Calls f(vector, token, head) for the unit's query vectors, in the order in which its states hold them.
template <class F>
void for_each_vector(const Plan& plan, const Unit& unit, F&& f) {
  int r = 0;
  for (int64_t kv = unit.kv; kv < unit.kv + unit.kv_heads; ++kv)
    for (int64_t t = 0; t < unit.tokens; ++t)
      for (int64_t h = 0; h < unit.heads; ++h) f(r++, unit.token + t, kv * plan.group() + unit.head + h);
}

void load_queries(const Plan& plan, const Unit& unit, float* q) {
  const PagedAttentionArgs& a = *plan.args;
  const int64_t k_dim = a.q.size(2), stride = padded(k_dim);
  for_each_vector(plan, unit, [&](int r, int64_t token, int64_t head) {
    float* to = std::copy_n(a.q.row<float>(token) + head * a.q.strides[1], k_dim, q + r * stride);
    std::fill(to, q + (r + 1) * stride, 0.0f);
  });
}

// One split of a unit, whose queries are loaded, into `state`.
void attend_split(const Plan& plan, const Unit& unit, int64_t split, const Scratch& scratch,
                  const Scratch::State& state) {
  const PagedAttentionArgs& a = *plan.args;
  clear(state, unit.vectors(), a.v_dim);
  const int64_t element = int64_t(size_of(a.cache.dtype)), k_dim = a.q.size(2);
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
    for (int64_t i = 0; i < unit.kv_heads; ++i) {
      const int64_t first = i * unit.group(), kv = unit.kv + i;
      Rows rows{unit.group(), k_dim, 0, a.v_dim, scratch.q + first * padded(k_dim)};
      rows.sum = state.sum + first * rows.v_stride();
      rows.highest = state.highest + first;
      rows.total = state.total + first;
      rows.scores = scratch.scores;
      rows.shrink = scratch.shrink;
      rows.fresh = scratch.fresh;
      plan.block(rows, blocks[turn], more ? &blocks[turn ^ 1] : nullptr, (a.k_offset + kv * k_dim) * element,
                 (a.v_offset + kv * a.v_dim) * element, plan.scoring);
    }
  }
}

template <class Y>
void finish(const Plan& plan, const Unit& unit, const Scratch::State& state) {
  const PagedAttentionArgs& a = *plan.args;
  for_each_vector(plan, unit, [&](int r, int64_t token, int64_t head) {
    float share = 1, total = state.total[r];
    if (a.sinks != nullptr) {
      const float highest = std::max(state.highest[r], a.sinks[head]);
      share = std::exp(state.highest[r] - highest);
      total = total * share + std::exp(a.sinks[head] - highest);
    }
    const float* sum = state.sum + r * padded(a.v_dim);
    const float factor = share / total;
    Y* y = a.y.row<Y>(token) + head * a.y.strides[1];
    for (int64_t i = 0; i < a.v_dim; ++i) y[i] = Y(sum[i] * factor);
  });
}

void finish(const Plan& plan, const Unit& unit, const Scratch::State& state) {
  if (plan.args->y.dtype == DType::bf16) return finish<bf16>(plan, unit, state);
  finish<float>(plan, unit, state);
}

// Large units share most loads; cut until there are four units, or splits of units, for every thread.
void choose_units(Plan& plan, int64_t workers) {
  plan.unit_kv_heads = std::min<int64_t>(plan.args->kv_heads, 8);
  while (count_units(plan).splits < 4 * workers) {
    if (plan.unit_kv_heads > 1) {
      plan.unit_kv_heads /= 2;
    } else if (plan.unit_rows > 8) {
      plan.unit_rows /= 2;
    } else {
      break;
    }
  }
}

void run(const PagedAttentionArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t v_dim = a.v_dim, workers = context.threads.size();
  Plan plan{&a, {a.scale, a.softcap}, simd::attention_block(a.cache.dtype)};
  choose_units(plan, workers);
  const Count count = count_units(plan);
  Unit* units = reinterpret_cast<Unit*>(context.workspace.alloc(DType::u8, {count.units * int64_t(sizeof(Unit))}).data);
  Unit* last = units;
  for_each_unit(plan, [&](const Unit& unit) { *last++ = unit; });

  const TensorView memory = context.workspace.alloc(DType::f32, {workers, Scratch::floats(plan)});
  // Few long contexts (decode): threads share a context, and partial results go through memory.
  if (count.units < 2 * workers && count.splits > count.units) {
    const TensorView partials = context.workspace.alloc(DType::f32, {count.splits, Scratch::state_floats(plan)});
    const auto partial = [&](int64_t index) { return Scratch::state_at(plan, partials.row<float>(index)); };
    context.threads.parallel_for(count.splits, [&](int64_t task, int worker) {
      const Unit* unit = units;
      while (task >= unit->partial + unit->splits) ++unit;
      const Scratch scratch(plan, memory.row<float>(worker));
      load_queries(plan, *unit, scratch.q);
      attend_split(plan, *unit, unit->first_split + task - unit->partial, scratch, partial(task));
    });
    context.threads.parallel_for(count.units, [&](int64_t task, int) {
      const Unit& unit = units[task];
      for (int64_t s = 1; s < unit.splits; ++s)
        merge(partial(unit.partial), partial(unit.partial + s), unit.vectors(), v_dim);
      finish(plan, unit, partial(unit.partial));
    });
    return;
  }
  context.threads.parallel_for(count.units, [&](int64_t task, int worker) {
    const Unit& unit = units[task];
    const Scratch scratch(plan, memory.row<float>(worker));
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
