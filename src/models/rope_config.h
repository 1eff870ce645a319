// The rotary embedding's fields of config.json, in both spellings: `rope_parameters` (transformers 5) and `rope_theta`
// with `rope_scaling` (before).
#pragma once

#include "layers/rope.h"
#include "models/config_reader.h"

namespace medley {

// Reads the fields for heads with `head_dim` rotary dimensions (times partial_rotary_factor). Types: default, linear,
// llama3, yarn; others are refused by name.
RopeSpec read_rope(ConfigReader& config, int64_t head_dim, double default_theta = 10000, double default_partial = 1);

// The same from an object of the family's choosing (absent: the default type); for models with several ropes.
RopeSpec read_rope(ConfigReader& config, std::optional<ConfigReader> parameters, int64_t head_dim, double default_theta,
                   double default_partial = 1);

// DeepSeek's factor on the softmax scale under YaRN: (0.1 mscale_all_dim ln(factor) + 1)^2, else 1.
double yarn_softmax_factor(ConfigReader& config);

}  // namespace medley
