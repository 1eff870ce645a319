// generation_config.json: how a model's makers want it sampled.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "medley/sampling_params.h"

namespace medley {

class ModelSource;
struct ModelInfo;

// SamplingParams with the file's temperature, top_k, top_p, min_p and repetition_penalty; of null (no file), their own
// defaults. As in transformers, do_sample false means greedy; where it is not said, a file with a temperature, top_k,
// top_p or min_p means sampling. Throws Error naming file and field for a value of the wrong type or range.
SamplingParams read_generation_config(const nlohmann::json& json, const std::string& origin);

// Which tokens end a text: generation_config.json's, which the model was tuned to end with, or else config.json's.
std::vector<int32_t> read_eos_ids(const ModelSource& source, const ModelInfo& info);

}  // namespace medley
