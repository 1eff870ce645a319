// Mixture of experts in six stages, each visible in forward(): route, align, dispatch, the experts (grouped GEMM gate
// and up, activation, grouped GEMM down), combine, weighted sum; then the shared experts.
//
// Experts' weights live in slots. expert_to_slot maps a logical expert to its slot (-1: on another rank) and may be
// changed between steps; the weighted sum runs in ascending logical expert id, so where an expert lives changes no bit.
#pragma once

#include <optional>

#include "kernels/moe.h"
#include "layers/linear.h"
#include "layers/mlp.h"
#include "layers/parameter.h"

namespace medley {

// How a checkpoint stores the experts' matrices.
enum class ExpertStorage : uint8_t {
  apart,        // each its own: "experts.N." + gate, up [inner, hidden] and down [hidden, inner]
  stacked,      // one tensor of all: gate_up [experts, 2 inner, hidden], gate over up; down [experts, hidden, inner]
  separate,     // one tensor of all for each of gate, up [experts, inner, hidden] and down [experts, hidden, inner]
  interleaved,  // gpt-oss: gate_up [experts, hidden, 2 inner], gate and up in turns; down [experts, inner, hidden]
};

struct MoeSpec {
  std::string prefix;  // "model.layers.0.mlp."
  int64_t hidden = 0, intermediate = 0;
  RoutingRule rule;
  Activation activation = Activation::silu;
  std::string router = "gate.weight";
  std::string router_bias, correction_bias;  // empty: none
  ExpertStorage storage = ExpertStorage::apart;
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";  // an empty gate: not gated
  std::string gate_up = "experts.gate_up_proj";  // stacked, interleaved; `down` is a full name then
  bool bias = false;  // of the experts, when they are not apart: name + "_bias"; separate: name + ".bias"
  std::optional<MlpSpec> shared;
  std::string shared_gate;  // [1, hidden]: the shared expert's output times its sigmoid; empty: as it is

  bool gated() const {
    return storage == ExpertStorage::stacked || storage == ExpertStorage::interleaved || !gate.empty();
  }

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
  // Arguments of align for these ids, with room for its outputs.
  AlignArgs alignment(const TensorView& topk_ids, ExecContext& exec) const;
  struct ExpertViews;
  void load_experts(LoadContext& context);
  ExpertViews take_apart(LoadContext& context, UnitRange mine) const;
  ExpertViews take_stacked(LoadContext& context, UnitRange mine) const;
  ExpertViews take_separate(LoadContext& context, UnitRange mine) const;
  void load_shared(LoadContext& context);
  void add_shared(const TensorView& x, TensorView shared, const TensorView& y, ExecContext& exec) const;

  MoeSpec spec_;
  DType dtype_;
  Device device_;
  Communicator* comm_ = nullptr;
  Linear router_;
  Parameter correction_bias_;
  ParameterArray<int32_t> expert_to_slot_;  // [experts]; empty: the slots are the experts
  int64_t up_width_ = 0;                    // 2 * intermediate, or intermediate when not gated
  ExpertLinear gate_up_, down_;             // slots x [up_width, hidden], slots x [hidden, intermediate]
  std::optional<Mlp> shared_;
  std::optional<Linear> shared_gate_;
  Kernel<RouteArgs> route_, route_shared_;
  Kernel<AlignArgs> align_;
  Kernel<GatedActivationArgs> activate_;
  Kernel<WeightedSumArgs> sum_;
  Kernel<AddArgs> add_;
};

}  // namespace medley
