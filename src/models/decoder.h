// The stack most families are: embedding, blocks around a residual stream, a final norm, a head. A family's file turns
// its config.json into a DecoderSpec; what is here runs it.
#pragma once

#include <string>
#include <vector>

#include "models/block.h"
#include "models/model.h"
#include "models/mtp.h"

namespace medley {

struct DecoderSpec {
  ModelInfo info;
  std::string embedding;  // tensor names
  std::string final_norm;
  std::string head = "lm_head.weight";
  bool tied = false;            // the head is the embedding
  float embedding_scale = 1;    // of the embedding's rows as they enter the stream; a tied head is not scaled
  NormRule norm;                // of every norm of the stack
  std::vector<RopeSpec> ropes;  // attention layers name theirs by index
  std::vector<BlockSpec> blocks;
  float logits_scale = 1;
  float logits_softcap = 0;  // logits = softcap * tanh(logits / softcap), after the scale; 0: none
  std::vector<MtpSpec> mtp;
  std::string stored_prefix;         // what the files write for "model."; empty: the same
  std::vector<std::string> foreign;  // prefixes of tensors that belong to another model in the same files
  std::vector<std::string> derived;  // tensor names that may be there and are not read
};

std::unique_ptr<Model> make_decoder(DecoderSpec spec);

}  // namespace medley
