#include "engine/generation_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {
namespace {

template <class T>
bool read(const nlohmann::json& json, const char* field, const std::string& path, T& value) {
  const auto at = json.find(field);
  if (at == json.end() || at->is_null()) return false;
  if (!at->is_number()) fail("{}: {} is {}, want a number", path, field, at->dump());
  value = at->get<T>();
  return true;
}

}  // namespace

SamplingParams read_generation_config(const nlohmann::json& json, const std::string& origin) {
  SamplingParams params;
  if (json.is_null()) return params;
  if (!json.is_object()) fail("{}: is not a JSON object", origin);
  bool sampling = read(json, "temperature", origin, params.temperature);
  sampling |= read(json, "top_k", origin, params.top_k);
  sampling |= read(json, "top_p", origin, params.top_p);
  sampling |= read(json, "min_p", origin, params.min_p);
  read(json, "repetition_penalty", origin, params.repetition_penalty);
  const auto do_sample = json.find("do_sample");
  if (do_sample != json.end() && do_sample->is_boolean()) sampling = do_sample->get<bool>();
  if (!sampling) params.temperature = 0;
  const std::string problem = params.problem(std::numeric_limits<int32_t>::max());
  if (!problem.empty()) fail("{}: {}", origin, problem);
  return params;
}

}  // namespace medley
