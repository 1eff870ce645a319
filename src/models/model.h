// A model as the engine drives it. Virtual once a step; what is inside are concrete layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/kv_cache_spec.h"
#include "core/step.h"
#include "layers/load_context.h"

namespace medley {

// What a config says of a model, before any weight is read.
struct ModelInfo {
  std::string model_type;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;                        // max_position_embeddings; 0: none (state-space models)
  std::vector<std::pair<std::string, int>> layers;  // by kind: {"MLA attention", 61}, {"dense MLP", 3}, ...
  std::vector<int32_t> eos_ids;                     // config.json's; generation_config.json's come first
  std::string quantization;                         // quant_method of quantization_config; empty: none
  int mtp_layers = 0;                               // num_nextn_predict_layers
};

struct ModelOptions {
  int32_t tokens_per_block = 16;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelInfo& info() const = 0;
  // Takes all weights; call once. Until then only info() may be used.
  virtual void load(LoadContext& context, const ModelOptions& options) = 0;
  // One per cache group, in the order of StepPlan::groups. After load().
  virtual const std::vector<KvCacheSpec>& cache_specs() const = 0;
  // What the multi-token-prediction module would keep beside them.
  virtual const std::vector<KvCacheSpec>& mtp_cache_specs() const = 0;

  // Does a step in which every row has one new token launch the same kernels whatever the rows' lengths? (Lengths above
  // Step::launch_context aside.)
  virtual bool decode_can_be_recorded() const = 0;

  // Fills hidden f32 [tokens, hidden_size]: after the final norm, before the head.
  virtual void forward(const Step& step, const TensorView& hidden, ExecContext& exec) = 0;
  // logits f32 [n, vocab_size] of n hidden rows f32 [n, hidden_size].
  virtual void logits(const TensorView& hidden, const TensorView& logits, ExecContext& exec) = 0;
};

}  // namespace medley
