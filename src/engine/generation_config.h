// generation_config.json: how a model's makers want it sampled.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "medley/sampling_params.h"

namespace medley {

// SamplingParams with the file's temperature, top_k, top_p, min_p and repetition_penalty; of null (no file), their own
// defaults. As in transformers, do_sample false means greedy; where it is not said, a file with a temperature, top_k,
// top_p or min_p means sampling. Throws Error naming file and field for a value of the wrong type or range.
SamplingParams read_generation_config(const nlohmann::json& json, const std::string& origin);

}  // namespace medley
