#include "models/rope_config.h"

#include <cmath>

namespace medley {
namespace {

double mscale(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

// The object that holds the scaling's fields, under whichever name.
std::optional<ConfigReader> scaling_object(ConfigReader& config) {
  if (config.has("rope_parameters") && config.has("rope_scaling"))
    config.refuse("rope_scaling", "rope_parameters is there as well; keep one of them");
  auto parameters = config.object("rope_parameters");
  return parameters ? parameters : config.object("rope_scaling");
}

std::string type_of(ConfigReader& scaling) {
  const std::string old_name = scaling.text("type", "default");
  return scaling.text("rope_type", old_name);
}

void read_yarn(ConfigReader& config, ConfigReader& scaling, RopeSpec& rope) {
  rope.scaling = RopeScaling::yarn;
  const double max_positions = double(config.integer("max_position_embeddings"));
  rope.original_max_positions = scaling.number("original_max_position_embeddings", max_positions);
  rope.factor = scaling.number("factor", max_positions / rope.original_max_positions);
  rope.beta_fast = scaling.number("beta_fast", 32);
  rope.beta_slow = scaling.number("beta_slow", 1);
  rope.truncate = scaling.boolean("truncate", true);
  const double top = scaling.number("mscale", 0), bottom = scaling.number("mscale_all_dim", 0);
  const double inferred =
      top != 0 && bottom != 0 ? mscale(rope.factor, top) / mscale(rope.factor, bottom) : mscale(rope.factor, 1);
  rope.attention_factor = scaling.number("attention_factor", inferred);
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t head_dim, double default_theta, double default_partial) {
  const double theta = config.number("rope_theta", default_theta);
  const double partial = config.number("partial_rotary_factor", default_partial);
  return read_rope(config, scaling_object(config), head_dim, theta, partial);
}

RopeSpec read_rope(ConfigReader& config, std::optional<ConfigReader> scaling, int64_t head_dim, double default_theta,
                   double default_partial) {
  RopeSpec rope;
  rope.theta = default_theta;
  double partial = default_partial;
  if (scaling) {
    rope.theta = scaling->number("rope_theta", rope.theta);
    partial = scaling->number("partial_rotary_factor", partial);
    const std::string type = type_of(*scaling);
    if (type == "linear") {
      rope.scaling = RopeScaling::linear;
      rope.factor = scaling->number("factor");
    } else if (type == "llama3") {
      rope.scaling = RopeScaling::llama3;
      rope.factor = scaling->number("factor");
      rope.low_freq_factor = scaling->number("low_freq_factor");
      rope.high_freq_factor = scaling->number("high_freq_factor");
      rope.original_max_positions = scaling->number("original_max_position_embeddings");
    } else if (type == "factors") {
      rope.scaling = RopeScaling::factors;  // not transformers': what GGUF files say of llama3's scaling
      rope.factors = scaling->numbers("factors");
    } else if (type == "yarn") {
      read_yarn(config, *scaling, rope);
    } else if (type != "default") {
      scaling->refuse(scaling->has("rope_type") ? "rope_type" : "type",
                      "medley supports default, linear, llama3 and yarn");
    }
    // Which dimensions turn with which axis of an image; text stands at the same position on all of them.
    scaling->ignore({"mrope_section", "mrope_interleaved"});
    scaling->finish();
  }
  if (rope.theta <= 1) fail("{}: rope_theta is {}: it must be above 1", config.origin(), rope.theta);
  if (rope.factor <= 0) fail("{}: the rope's factor is {}: it must be above 0", config.origin(), rope.factor);
  if (!(partial > 0 && partial <= 1))
    fail("{}: partial_rotary_factor is {}: it must be above 0 and at most 1", config.origin(), partial);
  rope.dim = int64_t(double(head_dim) * partial);
  if (rope.scaling == RopeScaling::factors && int64_t(rope.factors.size()) != rope.dim / 2)
    fail("{}: the rope has {} factors for {} frequencies", config.origin(), rope.factors.size(), rope.dim / 2);
  if (rope.dim <= 0 || rope.dim > head_dim || rope.dim % 2 != 0)
    fail("{}: {} of {} head dimensions cannot be rotated: an even number of them is wanted", config.origin(), rope.dim,
         head_dim);
  return rope;
}

double yarn_softmax_factor(ConfigReader& config) {
  auto scaling = scaling_object(config);
  if (!scaling || type_of(*scaling) == "default") return 1;
  const double all_dim = scaling->number("mscale_all_dim", 0);
  if (all_dim == 0) return 1;
  const double value = mscale(scaling->number("factor"), all_dim);
  return value * value;
}

}  // namespace medley
