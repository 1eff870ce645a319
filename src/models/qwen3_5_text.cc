// Qwen3.5's language model (Qwen Team 2026): Qwen3-Next's mixers, dense feed-forward parts.
#include "models/delta_net.h"
#include "models/families.h"

namespace medley {
namespace {

DecoderSpec read_qwen3_5(ConfigReader& config) {
  DecoderSpec spec = read_delta_net_stack(config, "qwen3_5_text");
  const MlpSpec mlp{.hidden = spec.info.hidden_size,
                    .intermediate = config.integer("intermediate_size"),
                    .activation = read_activation(config)};
  if (!config.integers("mlp_only_layers").empty()) config.refuse("mlp_only_layers", "there are no experts here");
  add_delta_net_blocks(config, spec, DeltaNetLayout::separate,
                       [&](int64_t, const std::string& at) { return mlp.at(at); });
  return spec;
}

}  // namespace

std::unique_ptr<Model> make_qwen3_5_text(ConfigReader& config) {
  return make_decoder(read_qwen3_5(config));
}

// As published: the language model beside an image encoder, which is left alone.
std::unique_ptr<Model> make_qwen3_5(ConfigReader& config) {
  std::optional<ConfigReader> text = config.object("text_config");
  if (!text) config.refuse("text_config", "the language model is described there");
  text->require("model_type", "qwen3_5_text");
  DecoderSpec spec = read_qwen3_5(*text);
  text->finish();
  spec.info.model_type = "qwen3_5";
  spec.tied = config.boolean("tie_word_embeddings", spec.tied);
  if (auto quantization = config.object("quantization_config"))
    spec.info.quantization = quantization->text("quant_method", "unknown method");
  spec.stored_prefix = "model.language_model.";
  spec.foreign = {"model.visual."};
  config.ignore({"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"});
  return make_decoder(std::move(spec));
}

}  // namespace medley
