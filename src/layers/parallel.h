// Attention and Mamba2 side by side on one input, their outputs added (Falcon-H1, Zuo et al. 2025).
#pragma once

#include "kernels/pointwise.h"
#include "layers/gqa.h"
#include "layers/mamba2.h"

namespace medley {

struct ParallelSpec {
  GqaSpec attention;
  Mamba2Spec mamba;
};

class Parallel {
 public:
  Parallel(LoadContext& context, const ParallelSpec& spec, CacheLayout& cache);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& x, std::span<const StepRope> ropes, const TensorView& y,
               ExecContext& exec) const;

 private:
  Gqa attention_;
  Mamba2 mamba_;
  Kernel<AddArgs> add_;
};

}  // namespace medley
