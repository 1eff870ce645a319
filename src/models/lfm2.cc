// LFM2 (Liquid AI 2025): gated short convolutions, a few attention layers, dense feed-forward parts.
#include "models/lfm2.h"

#include <algorithm>
#include <numeric>

#include "models/families.h"

namespace medley {
namespace {

// Attention in every layer that full_attn_idxs names (all, when it is absent) unless layer_types says more.
std::vector<bool> read_attention_layers(ConfigReader& config, int64_t layers) {
  std::vector<int64_t> indices = config.integers("full_attn_idxs");
  if (config.has("layer_types")) return read_full_attention_layers(config, "layer_types", layers);
  if (!config.has("full_attn_idxs")) {
    indices.resize(size_t(layers));
    std::iota(indices.begin(), indices.end(), 0);
  }
  std::vector<bool> attention(size_t(layers), false);
  for (const int64_t index : indices) {
    if (index < 0 || index >= layers) config.refuse("full_attn_idxs", "it names a layer that is not there");
    attention[size_t(index)] = true;
  }
  return attention;
}

// block_auto_adjust_ff_dim: two thirds of intermediate_size, times a factor, rounded up to a multiple.
int64_t read_intermediate(ConfigReader& config) {
  int64_t size = config.has("block_ff_dim") ? config.integer("block_ff_dim") : config.integer("intermediate_size");
  config.ignore({"intermediate_size"});
  const bool adjust = config.boolean("block_auto_adjust_ff_dim", true);
  const bool has_factor = config.has("block_ffn_dim_multiplier") || !config.has_key("block_ffn_dim_multiplier");
  const double factor = config.number("block_ffn_dim_multiplier", 1);
  if (!(factor > 0 && factor <= 1000)) config.refuse("block_ffn_dim_multiplier", "a factor up to 1000 is wanted");
  const int64_t multiple = config.integer("block_multiple_of", 256);
  if (!adjust) return size;
  size = 2 * size / 3;
  if (!has_factor) return size;
  size = int64_t(factor * double(size));
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace

MlpSpec lfm2_mlp(int64_t hidden, int64_t intermediate) {
  return {.hidden = hidden, .intermediate = intermediate, .gate = "w1", .up = "w3", .down = "w2"};
}

DecoderSpec read_lfm2_stack(ConfigReader& config, const std::string& model_type) {
  DecoderSpec spec = read_stack(config, model_type);
  spec.tied = config.boolean("tie_embedding", config.boolean("tie_word_embeddings", true));
  spec.final_norm = "model.embedding_norm.weight";
  spec.norm.eps = float(config.number("norm_eps", 1e-5));
  // Other names of the sizes in the first published files.
  for (const char* field : {"block_dim", "conv_dim", "conv_dim_out"}) config.require(field, spec.info.hidden_size);
  config.require("num_heads", config.integer("num_attention_heads"));
  config.require("use_pos_enc", true);
  config.require("block_use_swiglu", true);
  config.ignore({"block_norm_eps", "block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init",
                 "conv_use_xavier_init", "num_logits_to_keep"});
  return spec;
}

void add_lfm2_blocks(ConfigReader& config, DecoderSpec& spec, const FeedForwardOfLayer& feed_forward) {
  const TransformerConfig t = read_transformer(config);
  spec.ropes = {read_rope(config, t.head_dim, 1e6)};
  const std::vector<bool> attention_layers = read_attention_layers(config, t.layers);
  const ShortConvSpec conv{
      .hidden = t.hidden, .width = config.integer("conv_L_cache", 3), .bias = config.boolean("conv_bias", false)};
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer);
    BlockSpec block{.mixer_norm = at + "operator_norm.weight",
                    .mixer = conv.at(at + "conv."),
                    .feed_forward_norm = at + "ffn_norm.weight",
                    .feed_forward = feed_forward(layer, at + "feed_forward.")};
    if (attention_layers[size_t(layer)]) {
      GqaSpec attention = usual_attention(t, at + "self_attn.");
      attention.qk_norm = spec.norm;
      attention.q_norm_name = "q_layernorm";
      attention.k_norm_name = "k_layernorm";
      attention.o_name = "out_proj";
      block.mixer = attention;
    }
    spec.blocks.push_back(std::move(block));
  }
}

std::unique_ptr<Model> make_lfm2(ConfigReader& config) {
  DecoderSpec spec = read_lfm2_stack(config, "lfm2");
  const MlpSpec mlp = lfm2_mlp(spec.info.hidden_size, read_intermediate(config));
  add_lfm2_blocks(config, spec, [&](int64_t, const std::string& at) { return mlp.at(at); });
  return make_decoder(std::move(spec));
}

}  // namespace medley
