// MiniMax-Text-01 (MiniMax 2025): lightning attention with a softmax attention layer here and there, Mixtral's experts;
// residuals that start after the norm, with factors.
#include <cmath>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

// Geometric over the heads as ALiBi's (Press et al. 2022), smaller the deeper the layer; never quite 0.
std::vector<float> slopes(int64_t heads, int64_t layer, int64_t layers) {
  const double factor = 1 - double(layer) / (double(layers) - 1 + 1e-5) + 1e-5;
  std::vector<float> rates;
  for (int64_t head = 0; head < heads; ++head)
    rates.push_back(float(std::exp2(-8.0 * double(head + 1) / double(heads))) * float(factor));
  return rates;
}

ResidualRule read_residual(ConfigReader& config, const std::string& part) {
  return {.keep = float(config.number(part + "_alpha_factor", 1)),
          .add = float(config.number(part + "_beta_factor", 1)),
          .after_norm = true};
}

// layer_types; without it the first of every two layers is softmax attention.
std::vector<bool> read_attention_layers(ConfigReader& config, int64_t layers) {
  if (config.has("layer_types")) return read_full_attention_layers(config, "layer_types", layers);
  std::vector<bool> attention;
  for (int64_t layer = 0; layer < layers; ++layer) attention.push_back(layer % 2 == 0);
  return attention;
}

}  // namespace

std::unique_ptr<Model> make_minimax(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "minimax");
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  // The published model rotates rotary_dim of each head. transformers' port does not read the field; its own files,
  // without it, rotate the whole head.
  const int64_t rotary = config.integer("rotary_dim", t.head_dim);
  spec.ropes = {read_rope(config, t.head_dim, 1e6, double(rotary) / double(t.head_dim))};
  const int32_t window = read_window(config, "sliding_window", 0);
  const std::vector<bool> attention_layers = read_attention_layers(config, t.layers);
  const ResidualRule full = read_residual(config, "full_attn"), linear = read_residual(config, "linear_attn"),
                     mlp = read_residual(config, "mlp");
  const Activation activation = read_activation(config);
  const MoeSpec moe = read_mixtral_experts(config, t.hidden, activation);
  const int64_t table = config.integer("block_size", 256);
  if (table <= 0) config.refuse("block_size", "it must be above 0");
  for (int64_t layer = 0; layer < t.layers; ++layer) {
    const std::string at = layer_prefix(layer), mixer_at = at + "self_attn.";
    const bool is_full = attention_layers[size_t(layer)];
    BlockSpec block = usual_block(layer, {}, moe.at(at + "block_sparse_moe."));
    block.feed_forward_residual = mlp;
    if (is_full) {
      GqaSpec attention = usual_attention(t, mixer_at);
      attention.window = window;
      block.mixer = attention;
      block.mixer_residual = full;
    } else {
      block.mixer = LightningSpec{.prefix = mixer_at,
                                  .hidden = t.hidden,
                                  .heads = t.heads,
                                  .dim = t.head_dim,
                                  .activation = activation,
                                  .slopes = slopes(t.heads, layer, t.layers),
                                  .block = table};
      block.mixer_residual = linear;
      for (const char* name : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"})
        spec.derived.push_back(mixer_at + name);
    }
    spec.blocks.push_back(std::move(block));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
