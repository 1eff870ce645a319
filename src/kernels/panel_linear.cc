// linear, headwise_linear and grouped_linear on panel weights: cuts the rows into tiles and the panels into tasks. No
// cut changes a bit (see panel_linear.h), so all of them may depend on the number of rows and threads.
#include "kernels/panel_linear.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu.h"
#include "kernels/linear.h"

namespace medley {

namespace avx512 {
extern const panel::Tiles bf16_tiles;
}
namespace simd {
const panel::Tiles& tiles_for(DType weight);
}

namespace panel {
namespace {

// Whose tiles: Highway's for any CPU, with x in float32, or those of VDPBF16PS. (Tiles of float32 x written in AVX-512
// intrinsics gave 241 GFLOP/s a core at 512x4096x4096 where Highway's give 255, of 277: they are not kept.)
enum class Set { simd, avx512_bf16 };

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
  void* const* y = nullptr;
  int64_t rows = 0;
  const std::byte* matrix = nullptr;
  const float* bias = nullptr;
};

struct Problem {
  const Tiles* tiles = nullptr;
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

// Rows [row, row + rows) of a job against one panel. Tiles are as even as can be: 7 rows are 4 + 3, since a tile of
// one row costs as much memory traffic as one of six.
void multiply(const Problem& problem, const Job& job, int64_t panel, int64_t row, int64_t rows, float* sums) {
  const int64_t tiles = (rows + max_rows - 1) / max_rows;
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
  context.threads.parallel_for(num_jobs * panel_parts * row_parts, [&](int64_t task, int worker) {
    const Job& job = jobs[task / (panel_parts * row_parts)];
    const int64_t part = task % (panel_parts * row_parts);
    const int64_t row = part % row_parts * rows_each, rows = std::min(rows_each, job.rows - row);
    if (rows <= 0) return;
    const int64_t first = part / row_parts * panels_each;
    for (int64_t p = first; p < std::min(first + panels_each, panels); ++p)
      multiply(problem, job, p, row, rows, scratch.row<float>(worker));
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

Problem problem_of(Set set, const WeightView& weight, const TensorView& y) {
  Problem p;
  p.tiles = set == Set::simd ? &simd::tiles_for(weight.dtype) : &avx512::bf16_tiles;
  p.n = weight.n;
  p.k = weight.k;
  p.k_bytes = width * int64_t(size_of(weight.dtype));
  p.panel_bytes = packed_bytes(WeightLayout::panel, weight.dtype, width, weight.k);
  p.y = y.dtype;
  return p;
}

template <Set set>
void run_linear(const LinearArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  Problem problem = problem_of(set, a.weight, a.y);
  problem.accumulate = a.accumulate;
  const TensorView x = widened(a.x, set == Set::avx512_bf16, context);
  const int64_t rows = x.size(0);
  const void** x_rows = pointers<const void*>(rows, context);
  void** y_rows = pointers<void*>(rows, context);
  for (int64_t t = 0; t < rows; ++t) {
    x_rows[t] = row_of(x, t);
    y_rows[t] = const_cast<void*>(row_of(a.y, t));
  }
  const Job job{x_rows, y_rows, rows, a.weight.data, a.bias};
  run_jobs(problem, &job, 1, rows, context);
}

// One job a head.
template <Set set>
void run_headwise(const HeadwiseLinearArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const Problem problem = problem_of(set, a.weight, a.y);
  const TensorView x = widened(a.x, set == Set::avx512_bf16, context);
  const int64_t tokens = x.size(0), heads = a.weight.slots;
  const void** x_rows = pointers<const void*>(heads * tokens, context);
  void** y_rows = pointers<void*>(heads * tokens, context);
  Job* jobs = reinterpret_cast<Job*>(context.workspace.alloc(DType::u8, {heads * int64_t(sizeof(Job))}).data);
  for (int64_t h = 0; h < heads; ++h) {
    jobs[h] = {x_rows + h * tokens, y_rows + h * tokens, tokens, a.weight.data + h * a.weight.slot_bytes, nullptr};
    for (int64_t t = 0; t < tokens; ++t) {
      x_rows[h * tokens + t] = row_of(x.slice(1, h, 1), t);
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
  const TensorView x = widened(a.x, set == Set::avx512_bf16, context);
  const int64_t entries = *a.num_tokens_post_padded, blocks = entries / a.block_m;
  const void** x_rows = pointers<const void*>(a.num_pairs, context);
  void** y_rows = pointers<void*>(a.num_pairs, context);
  Job* jobs = reinterpret_cast<Job*>(context.workspace.alloc(DType::u8, {blocks * int64_t(sizeof(Job))}).data);
  int64_t num_jobs = 0, filled = 0, most = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t slot = a.expert_ids[block];
    if (block == 0 || a.expert_ids[block - 1] != slot)
      jobs[num_jobs++] = {x_rows + filled, y_rows + filled, 0, a.weight.data + slot * a.weight.slot_bytes,
                          a.bias != nullptr ? a.bias + slot * a.weight.n : nullptr};
    for (int64_t i = 0; i < a.block_m; ++i) {
      const int64_t pair = a.sorted_token_ids[block * a.block_m + i];
      if (pair >= a.num_pairs) continue;
      x_rows[filled] = row_of(x, pair / a.x_divisor);
      y_rows[filled++] = const_cast<void*>(row_of(a.y, pair));
      ++jobs[num_jobs - 1].rows;
    }
    most = std::max(most, jobs[num_jobs - 1].rows);
  }
  run_jobs(problem, jobs, num_jobs, most, context);
}

template <class Desc>
std::string supports_simd(const Desc& desc) {
  const bool x = desc.x == DType::f32 || desc.x == DType::bf16;
  const bool weight = desc.weight == DType::f32 || desc.weight == DType::bf16 || desc.weight == DType::f16;
  return x && weight ? "" : "takes f32 or bf16 x and f32, bf16 or f16 weights";
}

template <class Desc>
std::string supports_avx512_bf16(const Desc& desc) {
  std::string lacking = cpu::without_avx512_bf16();
  if (!lacking.empty()) return lacking;
  return desc.x == DType::bf16 && desc.weight == DType::bf16 ? "" : "takes bf16 x and bf16 weights";
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
}  // namespace avx512

}  // namespace medley
