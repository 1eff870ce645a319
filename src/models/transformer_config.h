// Fields that the transformer families share, read the same way in all of them.
#pragma once

#include <functional>

#include "models/config_reader.h"
#include "models/decoder.h"

namespace medley {

struct TransformerConfig {
  int64_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

// info, tying, norm eps, tensor names of the "model." stack. Layers are left to the family.
DecoderSpec read_stack(ConfigReader& config, const std::string& model_type);

// hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim with transformers' defaults.
TransformerConfig read_transformer(ConfigReader& config);

// "model.layers.N." with the usual norm names; mixer and feed-forward part are the family's.
std::string layer_prefix(int64_t layer);
BlockSpec usual_block(const std::string& prefix, MixerSpec mixer, FeedForwardSpec feed_forward);
inline BlockSpec usual_block(int64_t layer, MixerSpec mixer, FeedForwardSpec feed_forward) {
  return usual_block(layer_prefix(layer), std::move(mixer), std::move(feed_forward));
}

// Attention of these sizes, without biases, norms or window.
GqaSpec usual_attention(const TransformerConfig& t, const std::string& prefix);

// A window's size; absent: the family's default; null or 0: none.
int32_t read_window(ConfigReader& config, const std::string& field, int32_t fallback);
// layer_types, one of full_attention and sliding_attention per layer: true where sliding. Absent: `fallback(layer)`.
std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t layers,
                                      const std::function<bool(int64_t layer)>& fallback);
// Qwen's per-layer windows: use_sliding_window, sliding_window, max_window_layers, layer_types. 0: full attention.
// Which layers slide when layer_types is absent: from max_window_layers on, or as `fallback` says.
std::vector<int32_t> read_layer_windows(ConfigReader& config, int64_t layers);
std::vector<int32_t> read_layer_windows(ConfigReader& config, int64_t layers,
                                        const std::function<bool(int64_t layer, int64_t max_window_layers)>& fallback);

// Qwen's layers with experts: every decoder_sparse_step-th that mlp_only_layers does not list.
std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t layers, int64_t experts);

// Mixtral's experts, which MiniMax has too: softmax over all, the best num_experts_per_tok renormalised.
MoeSpec read_mixtral_experts(ConfigReader& config, int64_t hidden, Activation activation);

// hidden_act, as medley's activations; others are refused.
Activation read_activation(ConfigReader& config, const std::string& field = "hidden_act");

// eos_token_id: a number or a list.
std::vector<int32_t> read_eos(ConfigReader& config);

}  // namespace medley
