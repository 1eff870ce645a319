// One builder per family: config.json's fields to a model. registry.cc lists them.
#pragma once

#include <memory>

#include "models/config_reader.h"
#include "models/model.h"

namespace medley {

std::unique_ptr<Model> make_llama(ConfigReader& config);
std::unique_ptr<Model> make_qwen2(ConfigReader& config);
std::unique_ptr<Model> make_qwen3(ConfigReader& config);
std::unique_ptr<Model> make_qwen3_moe(ConfigReader& config);
std::unique_ptr<Model> make_mistral(ConfigReader& config);
std::unique_ptr<Model> make_mixtral(ConfigReader& config);
std::unique_ptr<Model> make_deepseek_v2(ConfigReader& config);
std::unique_ptr<Model> make_deepseek_v3(ConfigReader& config);
std::unique_ptr<Model> make_deepseek_v32(ConfigReader& config);
std::unique_ptr<Model> make_mamba(ConfigReader& config);
std::unique_ptr<Model> make_mamba2(ConfigReader& config);
std::unique_ptr<Model> make_jamba(ConfigReader& config);
std::unique_ptr<Model> make_gemma3_text(ConfigReader& config);
std::unique_ptr<Model> make_glm4_moe(ConfigReader& config);
std::unique_ptr<Model> make_gpt_oss(ConfigReader& config);
std::unique_ptr<Model> make_granite(ConfigReader& config);
std::unique_ptr<Model> make_granitemoe(ConfigReader& config);
std::unique_ptr<Model> make_granitemoeshared(ConfigReader& config);
std::unique_ptr<Model> make_olmoe(ConfigReader& config);
std::unique_ptr<Model> make_qwen2_moe(ConfigReader& config);
std::unique_ptr<Model> make_bamba(ConfigReader& config);
std::unique_ptr<Model> make_falcon_h1(ConfigReader& config);
std::unique_ptr<Model> make_granitemoehybrid(ConfigReader& config);
std::unique_ptr<Model> make_kimi_linear(ConfigReader& config);
std::unique_ptr<Model> make_minimax(ConfigReader& config);
std::unique_ptr<Model> make_qwen3_next(ConfigReader& config);
std::unique_ptr<Model> make_qwen3_5(ConfigReader& config);
std::unique_ptr<Model> make_qwen3_5_text(ConfigReader& config);
std::unique_ptr<Model> make_zamba2(ConfigReader& config);
std::unique_ptr<Model> make_falcon_mamba(ConfigReader& config);
std::unique_ptr<Model> make_lfm2(ConfigReader& config);
std::unique_ptr<Model> make_lfm2_moe(ConfigReader& config);
std::unique_ptr<Model> make_nemotron_h(ConfigReader& config);

}  // namespace medley
