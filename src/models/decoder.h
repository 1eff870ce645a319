// The stack most families are: embedding, blocks of a mixer and a feed-forward part around a residual stream, a final
// norm, a head. A family's file turns its config.json into a DecoderSpec; what is here runs it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "layers/gqa.h"
#include "layers/mamba.h"
#include "layers/mamba2.h"
#include "layers/mla.h"
#include "layers/mlp.h"
#include "layers/moe.h"
#include "models/model.h"

namespace medley {

using MixerSpec = std::variant<GqaSpec, MlaSpec, MambaSpec, Mamba2Spec>;
using FeedForwardSpec = std::variant<std::monostate, MlpSpec, MoeSpec>;

struct BlockSpec {
  std::string mixer_norm;  // tensor names of the norms' weights
  MixerSpec mixer;
  std::string feed_forward_norm;  // unused without a feed-forward part
  FeedForwardSpec feed_forward;
};

// One multi-token-prediction module (DeepSeek-V3, section 2.2): a block over eh_proj[norm(embedding), norm(hidden)].
struct MtpSpec {
  std::string prefix;  // "model.layers.61."
  BlockSpec block;
};

struct DecoderSpec {
  ModelInfo info;
  std::string embedding;  // tensor names
  std::string final_norm;
  std::string head = "lm_head.weight";
  bool tied = false;  // the head is the embedding
  float norm_eps = 1e-6f;
  std::optional<RopeSpec> rope;
  std::vector<BlockSpec> blocks;
  std::vector<MtpSpec> mtp;
  std::vector<std::string> derived;  // tensor names that may be there and are not read
};

std::unique_ptr<Model> make_decoder(DecoderSpec spec);

}  // namespace medley
