// What config.json may say: every field is honoured or refused by name.
#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace medley {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path golden(const std::string& family) {
  return std::filesystem::path(MEDLEY_SOURCE_DIR) / "tests/golden" / family;
}

void expect_refused(const json& config, const std::string& message, const std::string& and_this = "") {
  EXPECT_THAT([&] { make_model(config, "config.json"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("config.json"), HasSubstr(message), HasSubstr(and_this))));
}

TEST(Registry, UnknownTypesListTheKnownOnes) {
  json config = read_config(golden("llama"));
  config["model_type"] = "gpt2";
  expect_refused(config, "model_type \"gpt2\" is not known", "deepseek_v2, deepseek_v3, ");
  config.erase("model_type");
  expect_refused(config, "model_type is absent");
}

TEST(Registry, FieldsNobodyKnowsAreRefusedByName) {
  for (const auto& entry : std::filesystem::directory_iterator(golden("")))
    if (std::filesystem::exists(entry.path() / "config.json")) {
      json config = read_config(entry.path());
      config["attention_twist"] = 2;
      expect_refused(config, "attention_twist = 2");
      config["attention_twist"] = nullptr;  // says nothing
      EXPECT_NE(make_model(config, "config.json"), nullptr) << entry.path();
    }
}

TEST(Registry, FieldsThatAreMissingOrOfTheWrongTypeAreNamed) {
  json config = read_config(golden("llama"));
  config["hidden_size"] = "64";
  expect_refused(config, "hidden_size is \"64\": a whole number is wanted");
  config["hidden_size"] = 64.5;
  expect_refused(config, "hidden_size is 64.5");
  config.erase("hidden_size");
  expect_refused(config, "hidden_size is absent: the model cannot be built without it");
}

TEST(Registry, SizesNoModelHasAreRefused) {
  json config = read_config(golden("llama"));
  config["num_attention_heads"] = 20'000;
  expect_refused(config, "num_attention_heads is 20000: a number from 1 to 16384 is wanted");
  config["num_attention_heads"] = 6;
  config["hidden_size"] = 1 << 25;
  expect_refused(config, "hidden_size is 33554432: a number from 1 to 16777216 is wanted");
}

TEST(Registry, ValuesThatMedleyDoesNotComputeAreRefused) {
  json config = read_config(golden("llama"));
  config["hidden_act"] = "mish";
  expect_refused(config, "hidden_act is \"mish\"", "silu");

  config = read_config(golden("deepseek_v2"));
  config["topk_method"] = "other";
  expect_refused(config, "topk_method is \"other\"");
  config = read_config(golden("deepseek_v2"));
  config["norm_topk_prob"] = true;
  expect_refused(config, "norm_topk_prob is true");
  config = read_config(golden("deepseek_v3"));
  config["scoring_func"] = "softmax";
  expect_refused(config, "scoring_func is \"softmax\"");
  config = read_config(golden("deepseek_v3"));
  config["moe_layer_freq"] = 2;
  expect_refused(config, "moe_layer_freq is 2");
  config = read_config(golden("mamba2"));
  config["time_step_limit"] = {0.5, 0.1};
  expect_refused(config, "time_step_limit");
}

TEST(Registry, ValuesThatNoPublishedModelOfTheFamilyHasAreRefused) {
  const auto refuses = [](const std::string& family, const std::string& field, const json& value) {
    json config = read_config(golden(family));
    config[field] = value;
    expect_refused(config, field);
  };
  refuses("olmoe", "clip_qkv", 8.0);
  refuses("gemma3", "attn_logit_softcapping", 50.0);
  refuses("gemma3", "use_bidirectional_attention", true);
  refuses("gemma3", "layer_types", {"full_attention"});
  refuses("gpt_oss", "swiglu_limit", 5.0);
  refuses("gpt_oss", "hidden_act", "gelu");
  refuses("gpt_oss", "experts_per_token", 2);
  refuses("granitemoe", "logits_scaling", 0.0);
  refuses("granitemoe", "attention_multiplier", 0.0);
  refuses("qwen2_moe", "use_sliding_window", false);  // layer_types says sliding_attention all the same
  refuses("bamba", "attn_rotary_emb", 20);
  refuses("bamba", "mamba_n_heads", 5);
  refuses("falcon_h1", "mlp_multipliers", {1.0});
  refuses("falcon_h1", "mamba_proj_bias", true);  // with ssm_in_multiplier
  refuses("granitemoehybrid", "position_embedding_type", "alibi");
  refuses("granitemoehybrid", "layer_types", {"linear_attention", "full_attention"});
  refuses("kimi_linear", "mla_use_nope", false);
  refuses("kimi_linear", "mlp_layer_types", {"dense", "sparse", "thick", "sparse"});
  refuses("lfm2", "conv_dim", 64);
  refuses("lfm2", "layer_types", {"conv", "full_attention", "conv", "pool"});
  refuses("minimax", "block_size", 0);
  refuses("nemotron_h", "moe_latent_size", 16);
  refuses("nemotron_h", "num_hidden_layers", 5);
  refuses("nemotron_h", "attention_bias", true);
  refuses("qwen3_next", "linear_num_key_heads", 4);
  refuses("qwen3_5", "attn_output_gate", false);
  refuses("zamba2", "hybrid_layer_ids", {1, 2});
  refuses("zamba2", "num_attention_heads", 5);
  refuses("deepseek_v32", "q_lora_rank", nullptr);
  refuses("deepseek_v32", "index_topk", 0);
  refuses("deepseek_v32", "mlp_bias", true);
  refuses("deepseek_v32", "mlp_layer_types", {"dense", "sparse", "thick"});
  refuses("deepseek_v32", "layer_types", {"full_attention", "full_attention", "full_attention"});
}

TEST(Registry, PublishedSpellingsOfLayersMeanTheSame) {
  const auto layers = [](const json& config) { return make_model(config, "config.json")->info().layers; };
  json nemotron = read_config(golden("nemotron_h"));
  const auto parts = layers(nemotron);
  nemotron.erase("layers_block_type");
  nemotron["hybrid_override_pattern"] = "ME*-ME";
  EXPECT_EQ(layers(nemotron), parts);
  nemotron["hybrid_override_pattern"] = "ME*-M?";
  expect_refused(nemotron, "hybrid_override_pattern");

  json kimi = read_config(golden("kimi_linear"));
  const auto mixers = layers(kimi);
  kimi.erase("layer_types");
  kimi.erase("mlp_layer_types");
  kimi["linear_attn_config"] = {{"full_attn_layers", {2}},
                                {"kda_layers", {1, 3, 4}},
                                {"num_heads", 3},
                                {"head_dim", 10},
                                {"short_conv_kernel_size", 3}};
  EXPECT_EQ(layers(kimi), mixers);
  kimi["linear_attn_config"]["kda_layers"] = {1, 3};
  expect_refused(kimi, "linear_attn_config.kda_layers");

  json lfm2 = read_config(golden("lfm2"));
  const auto convolutions = layers(lfm2);
  lfm2.erase("layer_types");
  lfm2["full_attn_idxs"] = {1};
  EXPECT_EQ(layers(lfm2), convolutions);
}

TEST(Registry, ModelsWithOtherEncodersSayWhatWouldWork) {
  json wrapped = {{"model_type", "gemma3"}, {"text_config", read_config(golden("gemma3"))}};
  expect_refused(wrapped, "model_type \"gemma3\"", "text_config (model_type \"gemma3_text\")");
  wrapped = {{"model_type", "qwen3_5"}, {"text_config", read_config(golden("qwen3_5"))}};
  EXPECT_EQ(make_model(wrapped, "config.json")->info().layers,
            make_model(read_config(golden("qwen3_5")), "config.json")->info().layers);
  wrapped["audio_config"] = json::object();
  expect_refused(wrapped, "audio_config");
  wrapped.erase("text_config");
  expect_refused(wrapped, "text_config is absent");
}

TEST(Registry, GemmasRopesInBothSpellingsMeanTheSame) {
  json config = read_config(golden("gemma3"));
  config["rope_theta"] = 1e6;
  config["rope_local_base_freq"] = 1e4;
  config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  expect_refused(config, "rope_parameters is there as well");
  config.erase("rope_parameters");
  EXPECT_NE(make_model(config, "config.json"), nullptr);
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}}}, {"other", {{"rope_type", "default"}}}};
  config["rope_scaling"] = nullptr;
  expect_refused(config, "rope_parameters.other");
}

TEST(Registry, BothRopeSpellingsMeanTheSame) {
  json config = read_config(golden("llama"));
  json old = config;
  old["rope_theta"] = old["rope_parameters"]["rope_theta"];
  old["rope_scaling"] = old["rope_parameters"];
  old["rope_scaling"].erase("rope_theta");
  old["rope_scaling"]["type"] = old["rope_scaling"]["rope_type"];
  old["rope_scaling"].erase("rope_type");
  old.erase("rope_parameters");
  EXPECT_NE(make_model(old, "config.json"), nullptr);
  old["rope_scaling"]["twist"] = 1;
  expect_refused(old, "rope_scaling.twist = 1");
  old["rope_scaling"] = {{"type", "longrope"}, {"factor", 2.0}};
  expect_refused(old, "rope_scaling.type is \"longrope\"", "default, linear, llama3 and yarn");
  old["rope_parameters"] = config["rope_parameters"];
  expect_refused(old, "rope_parameters is there as well");
}

}  // namespace
}  // namespace medley
