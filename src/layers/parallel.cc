#include "layers/parallel.h"

namespace medley {

Parallel::Parallel(LoadContext& context, const ParallelSpec& spec, CacheLayout& cache)
    : attention_(context, spec.attention, cache),
      mamba_(context, spec.mamba, cache),
      add_(context.kernels.resolve(add_op(), {})) {}

void Parallel::forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
                       ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const TensorView attended = exec.workspace.alloc(DType::f32, {y.size(0), y.size(1)});
  attention_.forward(step, x, ropes, attended, exec);
  mamba_.forward(step, x, y, exec);
  add_({.x = attended, .y = y}, exec);
}

}  // namespace medley
