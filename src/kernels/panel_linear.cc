// linear, headwise_linear and grouped_linear on panel weights: cuts the rows into tiles and the panels into tasks. No
// cut changes a bit (see panel_linear.h), so all of them may depend on the number of rows and threads.
#include "kernels/panel_linear.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/block_int8.h"
#include "kernels/block_linear.h"
#include "kernels/block_panel.h"
#include "kernels/cpu.h"
#include "kernels/linear.h"

namespace medley {

namespace avx512 {
extern const panel::Tiles bf16_tiles;
const block::Kernels* block_bf16_kernels(const block::Format& format);
const block::Kernels* block_int8_kernels(const block::Format& format);
}  // namespace avx512
namespace simd {
const panel::Tiles& tiles_for(DType weight);
const block::Kernels* block_kernels(const block::Format& format);
}  // namespace simd

namespace panel {
namespace {

// Whose tiles: Highway's for any CPU, with x in float32, or those of VDPBF16PS. (Tiles of float32 x written in AVX-512
// intrinsics gave 241 GFLOP/s a core at 512x4096x4096 where Highway's give 255, of 277: they are not kept.)
enum class Set { simd, avx512_bf16, simd_int8, avx512_int8 };  // int8: of blocks, x in int8
constexpr bool takes_int8(Set set) {
  return set == Set::simd_int8 || set == Set::avx512_int8;
}

// k is cut so that a tile's rows of x stay in the first-level cache and the panel's part in the second: 6 x 1024
// floats are 24 KB, 64 x 1024 of bf16 128 KB. With few tiles, which wait for the panel to come from memory, the part is
// small enough for the first level, so that each tile fetches the next part while it multiplies: 16 rows took 1,740 us
// with 1024 and take 1,340 us with 128 (4096 x 4096 bf16, one core; reading alone takes 840 us, multiplying 1,030 us).
int64_t k_block(int64_t tiles) {
  return tiles > 1 && tiles <= 8 ? 128 : 1024;
}
// Rows of one task: their sums (48 KB) stay in the second-level cache between blocks of k.
constexpr int64_t task_rows = 192;
// Products a task should have at least: below (about a microsecond), handing it to a thread costs more than it saves.
constexpr int64_t task_products = int64_t(1) << 17;

// Rows that share a matrix: all of linear's, or those of one expert. Arrays of pointers live in the workspace.
struct Job {
  const void* const* x = nullptr;
  const float* const* x_sums = nullptr;    // of blocks with a minimum: by row, [groups]
  const float* const* x_scales = nullptr;  // of Set::simd_int8: by row, [units]; else null
  void* const* y = nullptr;
  int64_t rows = 0;
  const std::byte* matrix = nullptr;
  const float* bias = nullptr;
};

struct Problem {
  const Tiles* tiles = nullptr;
  const block::Kernels* blocks = nullptr;  // instead of tiles
  const block::Format* format = nullptr;
  int64_t x_bytes = 0;  // of an element
  int64_t q_bytes = 0;  // of an element of blocks, unpacked
  int64_t n = 0, k = 0;
  int64_t panel_bytes = 0;
  int64_t k_bytes = 0;  // of a panel, for one k
  DType y = DType::f32;
  bool accumulate = false;
};

template <class Y>
void finish_row(const float* sums, const float* bias, bool accumulate, int64_t count, Y* y) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = bias != nullptr ? sums[i] + bias[i] : sums[i];
    if constexpr (std::is_same_v<Y, bf16>) {
      y[i] = bf16(value);
    } else {
      y[i] = accumulate ? y[i] + value : value;
    }
  }
}

// Tiles are as even as can be: 7 rows are 4 + 3, since a tile of one row costs as much memory traffic as one of six.
int64_t tiles_of(int64_t rows) {
  return (rows + max_rows - 1) / max_rows;
}

// Rows [row, row + rows) of a job against one panel, into sums.
void multiply_plain(const Problem& problem, const Job& job, int64_t panel, int64_t row, int64_t rows, float* sums) {
  const int64_t tiles = tiles_of(rows);
  const auto first_of = [&](int64_t tile) { return tile * rows / tiles; };
  Tile t;
  t.panel = job.matrix + panel * problem.panel_bytes;
  int64_t begin = 0;
  const int64_t block = k_block(tiles);
  do {  // once for k = 0 too: the sums must become zero
    t.begin = begin;
    t.end = std::min(begin + block, problem.k);
    t.start = begin == 0;
    // One tile runs through the panel as it comes from memory: a little ahead will do. Several share the fetching of
    // the next block (panels follow one another in memory), so that only the first block is waited for.
    t.ahead = tiles == 1 ? 4096 : (t.end - begin) * problem.k_bytes;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = first_of(tile);
      t.fetch_first = int(std::min<int64_t>(4, tile * 4 / std::min<int64_t>(tiles, 4)));
      t.fetch_last = int(std::min<int64_t>(4, (tile + 1) * 4 / std::min<int64_t>(tiles, 4)));
      t.x = job.x + row + first;
      t.sums = sums + first * width;
      problem.tiles->run[first_of(tile + 1) - first - 1](t);
    }
    begin += block;
  } while (begin < problem.k);
}

// Units of blocks unpacked at a time: their integers and scales stay in the first-level cache while the tiles run.
constexpr int64_t units_at_once = 4;

// What a worker unpacks into.
struct Unpacked {
  alignas(64) float d[units_at_once * 2 * width];
  alignas(64) float m[units_at_once * 2 * width];
  alignas(64) float q[units_at_once * block::unit * width];  // or as many bf16
};

// The same on blocks. Groups follow one another in ascending k, whatever the number of units taken at once.
void multiply_blocks(const Problem& problem, const Job& job, int64_t panel, int64_t row, int64_t rows, float* sums,
                     Unpacked& unpacked) {
  const int64_t tiles = tiles_of(rows), units = problem.k / block::unit;
  const int64_t unit_groups = block::unit / problem.format->group, unit_q = block::unit * width * problem.q_bytes;
  const auto scales_at = [&](int64_t at) { return job.x_scales != nullptr ? job.x_scales + at : nullptr; };
  if (tiles == 1)
    return problem.blocks->direct[rows - 1]({.format = problem.format,
                                             .panel = job.matrix + panel * problem.panel_bytes,
                                             .units = units,
                                             .x = job.x + row,
                                             .x_sums = job.x_sums + row,
                                             .x_scales = scales_at(row),
                                             .sums = sums,
                                             .ahead = 4096});
  const int64_t column_units = problem.format->column_units;
  const auto first_of = [&](int64_t tile) { return tile * rows / tiles; };
  std::fill_n(sums, rows * width, 0.0f);
  const void* x[max_rows];
  for (int64_t begin = 0; begin < units; begin += units_at_once) {
    const int64_t count = std::min(units_at_once, units - begin);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t unit = begin + i;
      problem.blocks->unpack(
          {.format = problem.format,
           .column = job.matrix + panel * problem.panel_bytes + unit / column_units * problem.format->column_bytes,
           .index = unit % column_units,
           .q = reinterpret_cast<std::byte*>(unpacked.q) + i * unit_q,
           .d = unpacked.d + i * unit_groups * width,
           .m = unpacked.m + i * unit_groups * width,
           .ahead = 4096});
    }
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = first_of(tile), height = first_of(tile + 1) - first;
      for (int64_t r = 0; r < height; ++r)
        x[r] = static_cast<const std::byte*>(job.x[row + first + r]) + begin * block::unit * problem.x_bytes;
      problem.blocks->multiply[height - 1]({.x = x,
                                            .q = unpacked.q,
                                            .d = unpacked.d,
                                            .m = unpacked.m,
                                            .x_sums = job.x_sums + row + first,
                                            .x_scales = scales_at(row + first),
                                            .first_group = begin * unit_groups,
                                            .groups = count * unit_groups,
                                            .sums = sums + first * width});
    }
  }
}

// The sums as rows of y.
void finish(const Problem& problem, const Job& job, int64_t panel, int64_t row, int64_t rows, const float* sums) {
  const int64_t n0 = panel * width, count = std::min(width, problem.n - n0);
  const float* bias = job.bias != nullptr ? job.bias + n0 : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    void* y = job.y[row + r];
    if (problem.y == DType::bf16) {
      finish_row(sums + r * width, bias, false, count, static_cast<bf16*>(y) + n0);
    } else {
      finish_row(sums + r * width, bias, problem.accumulate, count, static_cast<float*>(y) + n0);
    }
  }
}

void run_jobs(const Problem& problem, const Job* jobs, int64_t num_jobs, int64_t max_job_rows, ExecContext& context) {
  const int64_t panels = (problem.n + width - 1) / width;
  const int64_t rows_each = std::min(max_job_rows, task_rows);
  const int64_t products = std::max<int64_t>(1, rows_each * width * problem.k);
  const int64_t panels_each = std::clamp<int64_t>(task_products / products, 1, std::max<int64_t>(1, panels));
  const int64_t panel_parts = (panels + panels_each - 1) / panels_each;
  const int64_t row_parts = (max_job_rows + rows_each - 1) / std::max<int64_t>(1, rows_each);
  const TensorView scratch = context.workspace.alloc(DType::f32, {context.threads.size(), rows_each * width});
  constexpr int64_t unpacked_bytes = int64_t(sizeof(Unpacked));
  const TensorView unpacked =
      context.workspace.alloc(DType::u8, {problem.blocks != nullptr ? context.threads.size() : 0, unpacked_bytes});
  context.threads.parallel_for(num_jobs * panel_parts * row_parts, [&](int64_t task, int worker) {
    const Job& job = jobs[task / (panel_parts * row_parts)];
    const int64_t part = task % (panel_parts * row_parts);
    const int64_t row = part % row_parts * rows_each, rows = std::min(rows_each, job.rows - row);
    if (rows <= 0) return;
    const int64_t first = part / row_parts * panels_each;
    float* sums = scratch.row<float>(worker);
    for (int64_t p = first; p < std::min(first + panels_each, panels); ++p) {
      if (problem.blocks != nullptr) {
        multiply_blocks(problem, job, p, row, rows, sums, *reinterpret_cast<Unpacked*>(unpacked.row<uint8_t>(worker)));
      } else {
        multiply_plain(problem, job, p, row, rows, sums);
      }
      finish(problem, job, p, row, rows, sums);
    }
  });
}

// x as the tiles take it: float32 unless they are the bf16 ones.
TensorView widened(const TensorView& x, bool keep, ExecContext& context) {
  if (keep || x.dtype == DType::f32) return x;
  const int64_t heads = x.rank == 3 ? x.size(1) : 1, dim = x.size(x.rank - 1);
  TensorView wide = context.workspace.alloc(DType::f32, {x.size(0), heads, dim});
  context.threads.parallel_for(x.size(0), [&](int64_t t, int) {
    for (int64_t h = 0; h < heads; ++h) {
      const bf16* from = x.row<bf16>(t) + (x.rank == 3 ? h * x.strides[1] : 0);
      float* to = wide.row<float>(t) + h * dim;
      for (int64_t i = 0; i < dim; ++i) to[i] = float(from[i]);
    }
  });
  return x.rank == 3 ? wide : wide.reshape({x.size(0), dim});
}

template <class Pointer>
Pointer* pointers(int64_t count, ExecContext& context) {
  return reinterpret_cast<Pointer*>(context.workspace.alloc(DType::i64, {count}).data);
}

const void* row_of(const TensorView& view, int64_t row) {
  return static_cast<const std::byte*>(view.data) + row * view.strides[0] * int64_t(size_of(view.dtype));
}

block::Format make_format(DType dtype) {
  const BlockFormat& from = format_of(dtype);
  const block_panel::Parts at = block_panel::parts_of(from);
  block::Format f;
  f.group = from.group, f.low_bits = from.low_bits, f.high_bits = from.high_bits;
  f.integers = from.scale == ScaleKind::integers, f.power = from.scale == ScaleKind::power;
  f.minimum = from.minimum, f.nibbles = from.nibbles;
  f.d = at.d, f.m = at.m, f.scale = at.scale, f.minimum_at = at.minimum;
  f.codes = at.codes, f.unit_bytes = at.unit_bytes, f.high = at.high;
  f.column_bytes = at.bytes, f.column_units = from.elements / block::unit;
  f.offset = -128;
  if (from.levels == nullptr) return f;
  const int bits = from.low_bits + from.high_bits, codes = 1 << bits;
  for (int i = 0; i < 64; ++i) {
    f.levels[i] = float(from.levels[i % codes]);
    f.bf16_levels[i] = bf16(f.levels[i]).bits;
    if (i < 16) f.byte_levels[i] = from.levels[i % codes];
    if (i > 0 && i < codes) f.even = f.even && from.levels[i] == from.levels[i - 1] + 1;
  }
  if (f.even) f.offset = from.levels[0];  // NOLINT(bugprone-signed-char-misuse): a number, not a character
  return f;
}

const block::Format& format_for(DType dtype) {
  static const std::vector<block::Format> all = [] {
    std::vector<block::Format> formats;
    for (int type = int(DType::q4_0); type <= int(DType::mxfp4); ++type) formats.push_back(make_format(DType(type)));
    return formats;
  }();
  return all[size_t(dtype) - size_t(DType::q4_0)];
}

Problem problem_of(Set set, const WeightView& weight, const TensorView& y) {
  Problem p;
  p.n = weight.n;
  p.k = weight.k;
  p.panel_bytes = packed_bytes(WeightLayout::panel, weight.dtype, width, weight.k);
  p.y = y.dtype;
  p.x_bytes = set == Set::simd || set == Set::simd_int8 ? 4 : 2;  // int8 with scale and sums: 64 bytes for 32
  p.q_bytes = set == Set::avx512_int8 ? 1 : p.x_bytes;
  if (is_block(weight.dtype)) {
    p.format = &format_for(weight.dtype);
    p.blocks = set == Set::avx512_bf16   ? avx512::block_bf16_kernels(*p.format)
               : set == Set::avx512_int8 ? avx512::block_int8_kernels(*p.format)
                                         : simd::block_kernels(*p.format);
  } else {
    p.tiles = set == Set::simd ? &simd::tiles_for(weight.dtype) : &avx512::bf16_tiles;
    p.k_bytes = width * int64_t(size_of(weight.dtype));
  }
  return p;
}

template <class X>
void sum_groups(const X* x, int64_t group, int64_t groups, float* sums) {
  for (int64_t g = 0; g < groups; ++g, x += group) {
    float sum = 0;
    for (int64_t i = 0; i < group; ++i) sum += float(x[i]);
    sums[g] = sum;
  }
}

// f32 [tokens, heads, groups]: the sums of x that minima multiply; without minima a view of nothing.
TensorView group_sums(const Problem& problem, const TensorView& x, ExecContext& context) {
  if (problem.blocks == nullptr || !problem.format->minimum) return {};
  const int64_t heads = x.rank == 3 ? x.size(1) : 1, groups = problem.k / problem.format->group;
  const TensorView sums = context.workspace.alloc(DType::f32, {x.size(0), heads, groups});
  context.threads.parallel_for(x.size(0), [&](int64_t t, int) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t at = x.rank == 3 ? h * x.strides[1] : 0;
      float* to = sums.row<float>(t) + h * groups;
      if (x.dtype == DType::bf16) {
        sum_groups(x.row<bf16>(t) + at, problem.format->group, groups, to);
      } else {
        sum_groups(x.row<float>(t) + at, problem.format->group, groups, to);
      }
    }
  });
  return sums;
}

// x and what goes with it, as the kernels take them.
struct Inputs {
  TensorView x;
  TensorView sums;    // f32 [tokens, heads, groups], or nothing
  TensorView scales;  // f32 [tokens, units], of Set::simd_int8

  const float* sums_row(int64_t token, int64_t head = 0) const {
    return sums ? sums.row<float>(token) + head * sums.strides[1] : nullptr;
  }
  const float* scales_row(int64_t token) const { return scales ? scales.row<float>(token) : nullptr; }
};

// One row in int8 as floats, for kernels that multiply those. With a minimum, sums are of what x then is.
template <class X>
void quantise_floats(const Problem& problem, const X* x, float* to, float* scales, float* sums) {
  const int64_t group = problem.format->group;
  int8_t q[block::unit];
  for (int64_t unit = 0; unit < problem.k / block::unit; ++unit, x += block::unit, to += block::unit) {
    scales[unit] = block_int8::quantise(x, q);
    for (int i = 0; i < block::unit; ++i) to[i] = float(q[i]);
    for (int64_t first = 0; first < block::unit && sums != nullptr; first += group) {
      int sum = 0;
      for (int64_t i = first; i < first + group; ++i) sum += q[i];
      *sums++ = scales[unit] * float(sum);
    }
  }
}

template <int low_bits>
void order_columns(const int8_t* q, int8_t* to) {
  for (int i = 0; i < block::unit; ++i) to[i] = q[block::byte_column(low_bits, i)];
}

// One row in int8.
template <class X>
void quantise_units(const Problem& problem, const X* x, block::Int8Unit* to) {
  const block::Format& f = *problem.format;
  int8_t q[block::unit];
  for (int64_t unit = 0; unit < problem.k / block::unit; ++unit, x += block::unit, ++to) {
    to->scale = block_int8::quantise(x, q);
    int sums[2] = {};
    for (int i = 0; i < block::unit; ++i) sums[i / f.group] += q[i];
    for (int g = 0; g < 2; ++g) {
      to->start[g] = f.offset * sums[g];
      to->sums[g] = to->scale * float(sums[g]);
    }
    if (f.low_bits == 2) order_columns<2>(q, to->q);
    if (f.low_bits == 4) order_columns<4>(q, to->q);
    if (f.low_bits == 8) order_columns<8>(q, to->q);
  }
}

template <class F>
void with_row_type(const TensorView& x, int64_t row, F&& f) {
  return x.dtype == DType::bf16 ? f(x.row<bf16>(row)) : f(x.row<float>(row));
}

template <Set set>
Inputs inputs_of(const Problem& problem, const TensorView& x, ExecContext& context) {
  Inputs inputs;
  if constexpr (!takes_int8(set)) {
    inputs.x = widened(x, set == Set::avx512_bf16, context);
    inputs.sums = group_sums(problem, inputs.x, context);
    return inputs;
  }
  const int64_t tokens = x.size(0), units = problem.k / block::unit;
  if constexpr (set == Set::avx512_int8) {
    static_assert(sizeof(block::Int8Unit) == 2 * block::unit);
    inputs.x = context.workspace.alloc(DType::u8, {tokens, units * int64_t(sizeof(block::Int8Unit))});
    context.threads.parallel_for(tokens, [&](int64_t t, int) {
      auto* to = reinterpret_cast<block::Int8Unit*>(inputs.x.row<uint8_t>(t));
      with_row_type(x, t, [&](const auto* row) { quantise_units(problem, row, to); });
    });
  } else {
    inputs.x = context.workspace.alloc(DType::f32, {tokens, problem.k});
    inputs.scales = context.workspace.alloc(DType::f32, {tokens, units});
    if (problem.format->minimum)
      inputs.sums = context.workspace.alloc(DType::f32, {tokens, 1, problem.k / problem.format->group});
    context.threads.parallel_for(tokens, [&](int64_t t, int) {
      float* sums = inputs.sums ? inputs.sums.row<float>(t) : nullptr;
      with_row_type(x, t, [&](const auto* row) {
        quantise_floats(problem, row, inputs.x.row<float>(t), inputs.scales.row<float>(t), sums);
      });
    });
  }
  return inputs;
}

template <Set set>
void run_linear(const LinearArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  Problem problem = problem_of(set, a.weight, a.y);
  problem.accumulate = a.accumulate;
  const Inputs inputs = inputs_of<set>(problem, a.x, context);
  const TensorView& x = inputs.x;
  const int64_t rows = x.size(0);
  const void** x_rows = pointers<const void*>(rows, context);
  const float** x_sums = pointers<const float*>(rows, context);
  const float** x_scales = inputs.scales ? pointers<const float*>(rows, context) : nullptr;
  void** y_rows = pointers<void*>(rows, context);
  for (int64_t t = 0; t < rows; ++t) {
    x_rows[t] = row_of(x, t);
    x_sums[t] = inputs.sums_row(t);
    if (x_scales != nullptr) x_scales[t] = inputs.scales_row(t);
    y_rows[t] = const_cast<void*>(row_of(a.y, t));
  }
  const Job job{x_rows, x_sums, x_scales, y_rows, rows, a.weight.data, a.bias};
  run_jobs(problem, &job, 1, rows, context);
}

// One job a head.
template <Set set>
void run_headwise(const HeadwiseLinearArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const Problem problem = problem_of(set, a.weight, a.y);
  const Inputs inputs = inputs_of<set>(problem, a.x, context);
  const TensorView& x = inputs.x;
  const int64_t tokens = x.size(0), heads = a.weight.slots;
  const void** x_rows = pointers<const void*>(heads * tokens, context);
  const float** x_sums = pointers<const float*>(heads * tokens, context);
  void** y_rows = pointers<void*>(heads * tokens, context);
  Job* jobs = reinterpret_cast<Job*>(context.workspace.alloc(DType::u8, {heads * int64_t(sizeof(Job))}).data);
  for (int64_t h = 0; h < heads; ++h) {
    jobs[h] = {x_rows + h * tokens,
               x_sums + h * tokens,
               nullptr,
               y_rows + h * tokens,
               tokens,
               a.weight.data + h * a.weight.slot_bytes,
               nullptr};
    for (int64_t t = 0; t < tokens; ++t) {
      x_rows[h * tokens + t] = row_of(x.slice(1, h, 1), t);
      x_sums[h * tokens + t] = inputs.sums_row(t, h);
      y_rows[h * tokens + t] = const_cast<void*>(row_of(a.y.slice(1, h, 1), t));
    }
  }
  run_jobs(problem, jobs, heads, tokens, context);
}

// Consecutive blocks of one expert are one job: its matrix is read once for all its rows.
template <Set set>
void run_grouped(const GroupedLinearArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const Problem problem = problem_of(set, a.weight, a.y);
  const Inputs inputs = inputs_of<set>(problem, a.x, context);
  const TensorView& x = inputs.x;
  const int64_t entries = *a.num_tokens_post_padded, blocks = entries / a.block_m;
  const void** x_rows = pointers<const void*>(a.num_pairs, context);
  const float** x_sums = pointers<const float*>(a.num_pairs, context);
  const float** x_scales = inputs.scales ? pointers<const float*>(a.num_pairs, context) : nullptr;
  void** y_rows = pointers<void*>(a.num_pairs, context);
  Job* jobs = reinterpret_cast<Job*>(context.workspace.alloc(DType::u8, {blocks * int64_t(sizeof(Job))}).data);
  int64_t num_jobs = 0, filled = 0, most = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t slot = a.expert_ids[block];
    if (block == 0 || a.expert_ids[block - 1] != slot)
      jobs[num_jobs++] = {x_rows + filled,
                          x_sums + filled,
                          x_scales != nullptr ? x_scales + filled : nullptr,
                          y_rows + filled,
                          0,
                          a.weight.data + slot * a.weight.slot_bytes,
                          a.bias != nullptr ? a.bias + slot * a.weight.n : nullptr};
    for (int64_t i = 0; i < a.block_m; ++i) {
      const int64_t pair = a.sorted_token_ids[block * a.block_m + i];
      if (pair >= a.num_pairs) continue;
      x_rows[filled] = row_of(x, pair / a.x_divisor);
      x_sums[filled] = inputs.sums_row(pair / a.x_divisor);
      if (x_scales != nullptr) x_scales[filled] = inputs.scales_row(pair / a.x_divisor);
      y_rows[filled++] = const_cast<void*>(row_of(a.y, pair));
      ++jobs[num_jobs - 1].rows;
    }
    most = std::max(most, jobs[num_jobs - 1].rows);
  }
  run_jobs(problem, jobs, num_jobs, most, context);
}

template <class Desc>
std::string supports_simd(const Desc& desc) {
  if (desc.int8) return "does not quantise x";
  const bool x = desc.x == DType::f32 || desc.x == DType::bf16;
  const bool plain = desc.weight == DType::f32 || desc.weight == DType::bf16 || desc.weight == DType::f16;
  return x && (plain || is_block(desc.weight)) ? "" : "takes f32 or bf16 x and f32, bf16, f16 or block weights";
}

template <class Desc>
std::string supports_avx512_bf16(const Desc& desc) {
  std::string lacking = cpu::without_avx512_bf16();
  if (!lacking.empty()) return lacking;
  if (desc.int8) return "does not quantise x";
  const bool weight = desc.weight == DType::bf16 || is_block(desc.weight);
  return desc.x == DType::bf16 && weight ? "" : "takes bf16 x and bf16 or block weights";
}

template <class Desc>
std::string supports_simd_int8(const Desc& desc) {
  return desc.int8 && is_block(desc.weight) ? "" : "takes x as int8 and block weights";
}

template <class Desc>
std::string supports_avx512_int8(const Desc& desc) {
  std::string lacking = cpu::without_avx512_vnni();
  return lacking.empty() ? supports_simd_int8(desc) : lacking;
}

}  // namespace
}  // namespace panel

namespace simd {
extern const Implementation<LinearDesc, LinearArgs> linear{"simd.linear", Level::simd, panel::supports_simd<LinearDesc>,
                                                           panel::run_linear<panel::Set::simd>, WeightLayout::panel};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{
    "simd.headwise_linear", Level::simd, panel::supports_simd<HeadwiseLinearDesc>,
    panel::run_headwise<panel::Set::simd>, WeightLayout::panel};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{
    "simd.grouped_linear", Level::simd, panel::supports_simd<GroupedLinearDesc>, panel::run_grouped<panel::Set::simd>,
    WeightLayout::panel};
extern const Implementation<LinearDesc, LinearArgs> linear_int8{
    "simd.linear_int8", Level::simd, panel::supports_simd_int8<LinearDesc>, panel::run_linear<panel::Set::simd_int8>,
    WeightLayout::panel};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear_int8{
    "simd.grouped_linear_int8", Level::simd, panel::supports_simd_int8<GroupedLinearDesc>,
    panel::run_grouped<panel::Set::simd_int8>, WeightLayout::panel};
}  // namespace simd

namespace avx512 {
extern const Implementation<LinearDesc, LinearArgs> linear{
    "avx512.linear", Level::avx512, panel::supports_avx512_bf16<LinearDesc>, panel::run_linear<panel::Set::avx512_bf16>,
    WeightLayout::panel};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{
    "avx512.headwise_linear", Level::avx512, panel::supports_avx512_bf16<HeadwiseLinearDesc>,
    panel::run_headwise<panel::Set::avx512_bf16>, WeightLayout::panel};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{
    "avx512.grouped_linear", Level::avx512, panel::supports_avx512_bf16<GroupedLinearDesc>,
    panel::run_grouped<panel::Set::avx512_bf16>, WeightLayout::panel};
extern const Implementation<LinearDesc, LinearArgs> linear_int8{
    "avx512.linear_int8", Level::avx512, panel::supports_avx512_int8<LinearDesc>,
    panel::run_linear<panel::Set::avx512_int8>, WeightLayout::panel};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear_int8{
    "avx512.grouped_linear_int8", Level::avx512, panel::supports_avx512_int8<GroupedLinearDesc>,
    panel::run_grouped<panel::Set::avx512_int8>, WeightLayout::panel};
}  // namespace avx512

}  // namespace medley
