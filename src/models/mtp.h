// One module for multi-token prediction (DeepSeek-V3, section 2.2): a block of the model's own kind over
// projection[norm(embedding), norm(hidden)], then a norm; embedding and head are the model's. It guesses the token
// after the one it is given, and keeps a cache row for each token as the model's blocks do.
#pragma once

#include "models/block.h"

namespace medley {

struct MtpSpec {
  std::string prefix;  // "model.layers.61."
  BlockSpec block;
  // Tensor names behind the prefix.
  std::string embedding_norm = "enorm.weight", hidden_norm = "hnorm.weight";
  std::string projection = "eh_proj.weight";  // [hidden, 2 * hidden]: the embedding's columns first
  std::string norm = "shared_head.norm.weight";
};

class MtpModule {
 public:
  MtpModule(LoadContext& context, const MtpSpec& spec, int64_t hidden, NormRule norm, CacheLayout& cache);

  // All f32 [tokens, hidden]; see Model::draft.
  void forward(const Step& step, const TensorView& embedding, const TensorView& previous,
               std::span<const StepRope> ropes, const TensorView& y, ExecContext& exec) const;

 private:
  DType dtype_;
  RmsNorm embedding_norm_, hidden_norm_, norm_;
  Linear projection_;
  Block block_;
};

}  // namespace medley
