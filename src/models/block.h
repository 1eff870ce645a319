// One block of the stack: a mixer and a feed-forward part, each behind a norm, joined to the residual stream.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "kernels/pointwise.h"
#include "layers/gated_delta_net.h"
#include "layers/gqa.h"
#include "layers/kda.h"
#include "layers/lightning.h"
#include "layers/mamba.h"
#include "layers/mamba2.h"
#include "layers/mla.h"
#include "layers/mlp.h"
#include "layers/moe.h"
#include "layers/parallel.h"
#include "layers/shared_transformer.h"
#include "layers/short_conv.h"

namespace medley {

using MixerSpec = std::variant<std::monostate, GqaSpec, MlaSpec, MambaSpec, Mamba2Spec, ShortConvSpec,
                               GatedDeltaNetSpec, KdaSpec, LightningSpec, ParallelSpec>;
using FeedForwardSpec = std::variant<std::monostate, MlpSpec, MoeSpec>;

// How what a part made joins the residual stream: x = keep * x + add * made.
struct ResidualRule {
  float keep = 1, add = 1;
  bool after_norm = false;  // x is what the part's norm made of the stream, not the stream itself (MiniMax)
};

struct BlockSpec {
  std::string mixer_norm;  // tensor names of the norms' weights
  MixerSpec mixer;         // none: the block is a feed-forward part alone
  std::string feed_forward_norm;
  FeedForwardSpec feed_forward;  // none: the block is a mixer alone
  std::string mixer_post_norm;   // of what the mixer made, before it joins the stream; empty: none
  std::string feed_forward_post_norm;
  ResidualRule mixer_residual, feed_forward_residual;
  std::optional<SharedTransformerSpec> aside;  // adds to what the mixer's norm reads, not to the stream (Zamba2)
};

// "GQA attention, window 128"; empty for none.
std::string kind_of(const MixerSpec& spec);
std::string kind_of(const FeedForwardSpec& spec);

// The residual stream between two blocks.
struct ResidualStream {
  TensorView x;          // f32 [tokens, hidden]
  TensorView delta;      // f32: what the last part made, still to be added: the next norm does it on its way; or empty
  TensorView normed;     // of the model's dtype: a part's input
  TensorView made;       // f32: a part's output
  TensorView embedding;  // f32: what the stream began as; where a block wants it
};

class Block {
 public:
  Block(LoadContext& context, const BlockSpec& spec, int64_t hidden, NormRule norm, CacheLayout& cache);

  // `ropes` by the index that attention layers name.
  void forward(const Step& step, ResidualStream& stream, std::span<const StepRope> ropes, ExecContext& exec) const;

 private:
  // A part's way out of the stream and back.
  struct Joint {
    RmsNorm norm;
    std::optional<RmsNorm> post_norm;
    ResidualRule rule;
  };
  using Mixer =
      std::variant<std::monostate, Gqa, Mla, Mamba, Mamba2, ShortConv, GatedDeltaNet, Kda, Lightning, Parallel>;
  using FeedForward = std::variant<std::monostate, Mlp, Moe>;

  static Mixer load_mixer(LoadContext& context, const MixerSpec& spec, CacheLayout& cache);
  static FeedForward load_feed_forward(LoadContext& context, const FeedForwardSpec& spec);
  void enter_beside(const Step& step, ResidualStream& stream, std::span<const StepRope> ropes, ExecContext& exec) const;
  void enter(const Joint& joint, ResidualStream& stream, ExecContext& exec) const;
  void leave(const Joint& joint, ResidualStream& stream, ExecContext& exec) const;

  std::optional<SharedTransformer> aside_;
  Joint mixer_joint_;
  Mixer mixer_;
  Joint feed_forward_joint_;
  FeedForward feed_forward_;
  Kernel<ConvertRowsArgs> to_dtype_;
  Kernel<ScaleArgs> scale_;
  Kernel<AddArgs> add_;
};

}  // namespace medley
