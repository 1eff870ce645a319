#include "models/delta_net.h"

#include "models/rope_config.h"

namespace medley {
namespace {

// layer_types; without it full attention closes every full_attention_interval layers.
std::vector<bool> read_attention_layers(ConfigReader& config, int64_t layers) {
  const int64_t interval = config.integer("full_attention_interval", 4);
  if (config.has("layer_types")) return read_full_attention_layers(config, "layer_types", layers);
  if (interval <= 0) config.refuse("full_attention_interval", "it must be above 0");
  std::vector<bool> attention;
  for (int64_t layer = 0; layer < layers; ++layer) attention.push_back((layer + 1) % interval == 0);
  return attention;
}

}  // namespace

DecoderSpec read_delta_net_stack(ConfigReader& config, const std::string& model_type) {
  DecoderSpec spec = read_stack(config, model_type);
  spec.norm = {.eps = float(config.number("rms_norm_eps", 1e-6)), .weight_offset = 1};
  config.require("attn_output_gate", true);
  config.require("mamba_ssm_dtype", "float32");
  config.require("use_sliding_window", false);
  return spec;
}

void add_delta_net_blocks(ConfigReader& config, DecoderSpec& spec, DeltaNetLayout layout,
                          const FeedForwardOfLayer& feed_forward) {
  TransformerConfig t = read_transformer(config);
  if (!config.has("head_dim")) t.head_dim = 256;  // the families' default, not hidden_size / heads
  spec.ropes = {read_rope(config, t.head_dim, 10000, 0.25)};
  const bool bias = config.boolean("attention_bias", false);
  const std::vector<bool> attention_layers = read_attention_layers(config, t.layers);
  const GatedDeltaNetSpec delta_net{.hidden = t.hidden,
                                    .heads = config.integer("linear_num_value_heads", 32),
                                    .key_heads = config.integer("linear_num_key_heads", 16),
                                    .k_dim = config.integer("linear_key_head_dim", 128),
                                    .v_dim = config.integer("linear_value_head_dim", 128),
                                    .conv_width = config.integer("linear_conv_kernel_dim", 4),
                                    .layout = layout,
                                    .norm_eps = spec.norm.eps};
  if (delta_net.key_heads <= 0 || delta_net.heads % delta_net.key_heads != 0)
    config.refuse("linear_num_value_heads", "it must be a multiple of linear_num_key_heads");
  const auto attention_at = [&](const std::string& at) {
    GqaSpec attention = usual_attention(t, at + "self_attn.");
    attention.qkv_bias = attention.o_bias = bias;
    attention.qk_norm = spec.norm;
    attention.gated = true;
    return attention;
  };
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    MixerSpec mixer = delta_net.at(at + "linear_attn.");
    if (attention_layers[size_t(layer)]) mixer = attention_at(at);
    spec.blocks.push_back(usual_block(layer, std::move(mixer), feed_forward(layer, at + "mlp.")));
  }
  // Published files have one module, whatever their config says; its block is an attention layer.
  spec.info.mtp_layers = int(config.integer("mtp_num_hidden_layers", config.integer("num_nextn_predict_layers", 1)));
  if (spec.info.mtp_layers < 0 || spec.info.mtp_layers > 1)
    config.refuse("mtp_num_hidden_layers", "medley supports one module for multi-token prediction here");
  config.require("mtp_use_dedicated_embeddings", false);
  if (spec.info.mtp_layers == 0) return;
  const std::string at = "mtp.layers.0.";
  spec.mtp.push_back({.prefix = "mtp.",
                      .block = usual_block(at, attention_at(at), feed_forward(0, at + "mlp.")),
                      .embedding_norm = "pre_fc_norm_embedding.weight",
                      .hidden_norm = "pre_fc_norm_hidden.weight",
                      .projection = "fc.weight",
                      .norm = "norm.weight"});
}

}  // namespace medley
