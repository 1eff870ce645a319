// Zamba2's transformer block (Glorioso et al. 2024): attention over the residual stream beside the token's embedding,
// an MLP over what it made, and a projection. A few such blocks serve many layers, each use with adapters of its own.
#pragma once

#include "kernels/pointwise.h"
#include "layers/gqa.h"
#include "layers/mlp.h"

namespace medley {

struct SharedTransformerSpec {
  std::string prefix;      // "model.layers.6.shared_transformer."
  std::string projection;  // tensor name, this use's own
  int64_t hidden = 0;
  GqaSpec attention;  // from 2 hidden to hidden
  MlpSpec mlp;
  NormRule norm;
};

class SharedTransformer {
 public:
  SharedTransformer(LoadContext& context, const SharedTransformerSpec& spec, CacheLayout& cache);
  // stream, embedding, y: f32 [tokens, hidden].
  void forward(const Step& step, const TensorView& stream, const TensorView& embedding, std::span<const StepRope> ropes,
               const TensorView& y, ExecContext& exec) const;

 private:
  int64_t hidden_;
  DType dtype_;
  RmsNorm attention_norm_, mlp_norm_;
  Gqa attention_;
  Mlp mlp_;
  Linear projection_;
  Kernel<ConvertRowsArgs> copy_, to_dtype_;
};

}  // namespace medley
