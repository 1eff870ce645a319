// The frequencies of a rotary embedding under the published scaling rules, and the table of one step.
#pragma once

#include <vector>

#include "core/step.h"
#include "kernels/rope.h"
#include "layers/parameter.h"

namespace medley {

enum class RopeScaling : uint8_t { none, linear, llama3, yarn };

struct RopeSpec {
  int64_t dim = 0;  // rotary dimensions of a head
  double theta = 10000;
  bool interleaved = false;

  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  double original_max_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // yarn: round the ramp's ends to whole dimensions
  double attention_factor = 1;                       // multiplies cosines and sines
};

// dim / 2 inverse frequencies, as transformers' modeling_rope_utils computes them.
std::vector<float> inverse_frequencies(const RopeSpec& spec);

class Rope {
 public:
  Rope() = default;
  Rope(LoadContext& context, const RopeSpec& spec);

  // f32 [tokens, dim]: this step's cosines and sines, shared by the layers.
  TensorView table(const Step& step, ExecContext& exec) const;
  // Rotates x [tokens, heads, >= dim] in place.
  void operator()(const TensorView& x, const TensorView& table, ExecContext& exec) const;

 private:
  Kernel<RopeAnglesArgs> angles_;
  Kernel<RopeArgs> rotate_;
  Parameter inv_freq_;
  float attention_factor_ = 1;
  bool interleaved_ = false;
};

// A rope with its table of one step.
struct StepRope {
  const Rope* rope = nullptr;
  TensorView table;

  void operator()(const TensorView& x, ExecContext& exec) const { (*rope)(x, table, exec); }
};

}  // namespace medley
