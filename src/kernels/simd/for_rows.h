// How the ops that go over rows once share them out.
#pragma once

#include <algorithm>

#include "kernels/exec_context.h"

namespace medley::simd {

// Elements that a task should have at least: below, handing it to a thread costs more than it saves.
constexpr int64_t task_elements = 1 << 14;

// Runs f(row) for every row, several rows to a task when they are short.
template <class F>
void for_rows(ExecContext& context, int64_t rows, int64_t elements, const F& f) {
  const int64_t each = std::max<int64_t>(1, task_elements / std::max<int64_t>(1, elements));
  context.threads.parallel_for((rows + each - 1) / each, [&](int64_t task, int) {
    for (int64_t row = task * each; row < std::min(rows, (task + 1) * each); ++row) f(row);
  });
}

}  // namespace medley::simd
