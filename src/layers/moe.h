// Mixture of experts in six stages, each visible in forward(): route, align, dispatch, the experts (grouped GEMM gate
// and up, activation, grouped GEMM down), combine, weighted sum; then the shared experts.
//
// Experts' weights live in slots. expert_to_slot maps a logical expert to its slot (-1: on another rank) and may be
// changed between steps; the weighted sum runs in ascending logical expert id, so where an expert lives changes no bit.
#pragma once

#include <optional>

#include "kernels/linear.h"
#include "kernels/moe.h"
#include "layers/mlp.h"

namespace medley {

struct MoeSpec {
  std::string prefix;  // "model.layers.0.mlp."
  int64_t hidden = 0, intermediate = 0;
  RoutingRule rule;
  Activation activation = Activation::silu;
  std::string router = "gate.weight";
  std::string correction_bias;                                         // empty: none
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // of "experts.N."
  std::optional<MlpSpec> shared;

  MoeSpec at(const std::string& place) const {
    MoeSpec copy = *this;
    copy.prefix = place;
    return copy;
  }
};

class Moe {
 public:
  Moe(LoadContext& context, const MoeSpec& spec);
  // x [tokens, hidden] of the model's dtype; y f32 [tokens, hidden].
  void forward(const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  struct Aligned {
    TensorView sorted_token_ids, expert_ids, num_tokens_post_padded;
    int64_t block_m = 0;
  };
  Aligned align(const TensorView& topk_ids, ExecContext& exec) const;
  void load_experts(LoadContext& context);

  MoeSpec spec_;
  DType dtype_;
  Communicator* comm_ = nullptr;
  Linear router_;
  std::vector<float> correction_bias_;
  std::vector<int32_t> expert_to_slot_;  // [experts]
  PackedMatrices gate_up_, down_;        // slots x [2 * intermediate, hidden], slots x [hidden, intermediate]
  std::optional<Mlp> shared_;
  Kernel<RouteArgs> route_;
  Kernel<AlignArgs> align_;
  Kernel<GroupedLinearArgs> up_gemm_, down_gemm_;
  Kernel<GatedActivationArgs> activate_;
  Kernel<WeightedSumArgs> sum_;
  Kernel<AddArgs> add_;
};

}  // namespace medley
