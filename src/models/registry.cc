#include "models/registry.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "models/families.h"
#include "models/model_source.h"

namespace medley {
namespace {

struct Family {
  const char* model_type;
  std::unique_ptr<Model> (*make)(ConfigReader&);
};

// A new family is one file and one line here.
constexpr Family families[] = {
    {"bamba", make_bamba},
    {"deepseek_v2", make_deepseek_v2},
    {"deepseek_v3", make_deepseek_v3},
    {"deepseek_v32", make_deepseek_v32},
    {"falcon_h1", make_falcon_h1},
    {"falcon_mamba", make_falcon_mamba},
    {"gemma3_text", make_gemma3_text},
    {"glm4_moe", make_glm4_moe},
    {"gpt_oss", make_gpt_oss},
    {"granite", make_granite},
    {"granitemoe", make_granitemoe},
    {"granitemoehybrid", make_granitemoehybrid},
    {"granitemoeshared", make_granitemoeshared},
    {"jamba", make_jamba},
    {"kimi_linear", make_kimi_linear},
    {"lfm2", make_lfm2},
    {"lfm2_moe", make_lfm2_moe},
    {"llama", make_llama},
    {"mamba", make_mamba},
    {"mamba2", make_mamba2},
    {"minimax", make_minimax},
    {"mistral", make_mistral},
    {"mixtral", make_mixtral},
    {"nemotron_h", make_nemotron_h},
    {"olmoe", make_olmoe},
    {"qwen2", make_qwen2},
    {"qwen2_moe", make_qwen2_moe},
    {"qwen3", make_qwen3},
    {"qwen3_5", make_qwen3_5},
    {"qwen3_5_text", make_qwen3_5_text},
    {"qwen3_moe", make_qwen3_moe},
    {"qwen3_next", make_qwen3_next},
    {"zamba2", make_zamba2},
};

bool config_type_known(const std::string& type) {
  return std::any_of(std::begin(families), std::end(families),
                     [&](const Family& family) { return type == family.model_type; });
}

}  // namespace

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const Family& family : families) names.emplace_back(family.model_type);
  return names;
}

nlohmann::json read_config(const std::filesystem::path& model) {
  return open_model(model)->config();
}

std::unique_ptr<Model> make_model(const nlohmann::json& json, const std::string& origin) {
  ConfigReader config(json, origin);
  const std::string type = config.text("model_type");
  for (const Family& family : families) {
    if (type != family.model_type) continue;
    std::unique_ptr<Model> model = family.make(config);
    config.finish();
    return model;
  }
  // Published beside an image or sound encoder, whose tensors no family here has a use for.
  if (const auto text = json.find("text_config"); text != json.end() && text->is_object())
    fail(
        "{}: model_type \"{}\" is a language model with encoders for more than text; medley runs language models "
        "alone. "
        "What is in text_config (model_type \"{}\") as config.json, with its tensors under that model's names, would "
        "work{}",
        origin, type, text->value("model_type", ""),
        config_type_known(text->value("model_type", "")) ? "" : " if medley knew that model_type");
  fail("{}: model_type \"{}\" is not known; medley runs {}", origin, type, join(known_model_types(), ", "));
}

}  // namespace medley
