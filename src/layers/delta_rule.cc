#include "layers/delta_rule.h"

#include <cmath>

#include "layers/mamba.h"

namespace medley {

DeltaRule::DeltaRule(LoadContext& context, const std::string& name, const DeltaRuleSizes& sizes,
                     DeltaRuleWeights weights, CacheLayout& cache)
    : sizes_(sizes), weights_(std::move(weights)), dtype_(context.dtype), reproducible_(context.reproducible) {
  const int64_t channels = sizes.channels();
  place_ = cache.add_state(name, conv_state_bytes(channels, sizes.conv_width) + sizes.values() * sizes.k_dim * 4,
                           fmt::format("convolution {} x {} + recurrent {} x {} x {}, f32", sizes.conv_width - 1,
                                       channels, sizes.heads, sizes.k_dim, sizes.v_dim));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels, .width = sizes.conv_width});
  scan_ = context.kernels.resolve(gated_delta_op(), {.heads = sizes.heads,
                                                     .key_heads = sizes.key_heads,
                                                     .k_dim = sizes.k_dim,
                                                     .v_dim = sizes.v_dim,
                                                     .decay_per_channel = sizes.decay_per_channel});
}

void DeltaRule::forward(const Step& step, const TensorView& qkv, const TensorView& decay, const TensorView& beta,
                        const TensorView& gate, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const DeltaRuleSizes& s = sizes_;
  const int64_t tokens = step.num_tokens, channels = s.channels();
  const RaggedRows rows = ragged_rows(step);
  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, channels});
  conv_({.x = qkv,
         .weight = weights_.conv.data(),
         .width = s.conv_width,
         .rows = rows,
         .state = state_slots(step, place_),
         .y = convolved},
        exec);
  const TensorView scanned = exec.workspace.alloc(DType::f32, {tokens, s.heads, s.v_dim});
  scan_({.q = convolved.slice(1, 0, s.keys()).split_last(s.key_heads, s.k_dim),
         .k = convolved.slice(1, s.keys(), s.keys()).split_last(s.key_heads, s.k_dim),
         .v = convolved.slice(1, 2 * s.keys(), s.values()).split_last(s.heads, s.v_dim),
         .dt = decay.split_last(s.heads, s.decay_per_channel ? s.k_dim : 1),
         .beta = beta,
         .a = weights_.a.data(),
         .dt_bias = weights_.dt_bias.data(),
         .scale = float(1 / std::sqrt(double(s.k_dim))),
         .rows = rows,
         .state = state_slots(step, place_, conv_state_bytes(channels, s.conv_width)),
         .y = scanned,
         .reproducible = reproducible_},
        exec);
  const TensorView normed = exec.workspace.alloc(dtype_, {tokens, s.values()});
  weights_.norm.gated(scanned.reshape({tokens, s.values()}), gate, s.gate, normed, exec);
  weights_.out(normed, y, exec);
}

}  // namespace medley
