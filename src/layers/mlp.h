// Feed-forward: down(act(gate x) * up x) (Shazeer 2020), or down(act(up x)) without a gate.
#pragma once

#include <optional>

#include "kernels/pointwise.h"
#include "layers/linear.h"
#include "layers/lora.h"

namespace medley {

struct MlpSpec {
  std::string prefix;  // "model.layers.0.mlp."
  int64_t hidden = 0, intermediate = 0;
  Activation activation = Activation::silu;
  bool bias = false;
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // tensor names; an empty gate: not gated
  std::string gate_over_up;              // one tensor with the rows of both, in place of gate and up
  int64_t adapter_rank = 0;              // of a low-rank addition to gate_over_up; 0: none
  std::string adapter;                   // its tensors' prefix below `prefix`
  std::string or_prefix;                 // where the tensors are in other exports of the same model; empty: nowhere
  float gate_scale = 1, down_scale = 1;  // factors of the projections' outputs (Falcon-H1)

  bool gated() const { return !gate.empty(); }

  MlpSpec at(const std::string& place) const {
    MlpSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class Mlp {
 public:
  Mlp(LoadContext& context, const MlpSpec& spec);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  Activation activation_;
  bool gated_;
  DType dtype_;
  int64_t inner_ = 0;             // of this rank
  ColumnParallelLinear gate_up_;  // gate over up, or up alone
  std::optional<Lora> adapter_;
  RowParallelLinear down_;
  Kernel<GatedActivationArgs> activate_;
};

}  // namespace medley
