#include "engine/generation_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

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

SamplingParams read_generation_config(const std::filesystem::path& folder) {
  SamplingParams params;
  const std::filesystem::path path = folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return params;
  const nlohmann::json json = read_json(path, JsonFloats::python);
  if (!json.is_object()) fail("{}: is not a JSON object", path.string());
  bool sampling = read(json, "temperature", path.string(), params.temperature);
  sampling |= read(json, "top_k", path.string(), params.top_k);
  sampling |= read(json, "top_p", path.string(), params.top_p);
  sampling |= read(json, "min_p", path.string(), params.min_p);
  read(json, "repetition_penalty", path.string(), params.repetition_penalty);
  const auto do_sample = json.find("do_sample");
  if (do_sample != json.end() && do_sample->is_boolean()) sampling = do_sample->get<bool>();
  if (!sampling) params.temperature = 0;
  const std::string problem = params.problem(std::numeric_limits<int32_t>::max());
  if (!problem.empty()) fail("{}: {}", path.string(), problem);
  return params;
}

}  // namespace medley
