#include "models/transformer_config.h"

#include <algorithm>

namespace medley {

std::vector<int32_t> read_eos(ConfigReader& config) {
  std::vector<int32_t> ids;
  for (const int64_t id : config.integer_or_list("eos_token_id")) ids.push_back(int32_t(id));
  return ids;
}

Activation read_activation(ConfigReader& config, const std::string& field) {
  const std::string name = config.text(field, "silu");
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return Activation::gelu_tanh;
  if (name == "gelu") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  if (name == "relu2") return Activation::relu2;
  config.refuse(field, "medley supports silu, gelu, gelu_pytorch_tanh, relu and relu2");
}

DecoderSpec read_stack(ConfigReader& config, const std::string& model_type) {
  DecoderSpec spec;
  spec.info.model_type = model_type;
  spec.info.vocab_size = config.integer("vocab_size");
  spec.info.hidden_size = config.integer("hidden_size");
  spec.info.max_positions = config.integer("max_position_embeddings", 0);
  spec.info.eos_ids = read_eos(config);
  if (auto quantization = config.object("quantization_config"))
    spec.info.quantization = quantization->text("quant_method", "unknown method");
  spec.tied = config.boolean("tie_word_embeddings", false);
  spec.embedding = "model.embed_tokens.weight";
  spec.final_norm = "model.norm.weight";
  if (spec.info.vocab_size <= 0 || spec.info.hidden_size <= 0)
    fail("{}: vocab_size and hidden_size must be above 0", config.origin());
  return spec;
}

TransformerConfig read_transformer(ConfigReader& config) {
  TransformerConfig t;
  t.hidden = config.integer("hidden_size");
  t.layers = config.layers();
  t.heads = config.integer("num_attention_heads");
  t.kv_heads = config.integer("num_key_value_heads", t.heads);
  if (t.layers <= 0 || t.heads <= 0 || t.kv_heads <= 0)
    fail("{}: num_hidden_layers, num_attention_heads and num_key_value_heads must be above 0", config.origin());
  const auto head_dim = config.optional_integer("head_dim");
  if (!head_dim && t.hidden % t.heads != 0)
    config.refuse("num_attention_heads", fmt::format("it does not divide hidden_size {}", t.hidden));
  t.head_dim = head_dim.value_or(t.hidden / t.heads);
  if (t.head_dim <= 0) config.refuse("head_dim", "it must be above 0");
  return t;
}

GqaSpec usual_attention(const TransformerConfig& t, const std::string& prefix) {
  return {.prefix = prefix, .hidden = t.hidden, .heads = t.heads, .kv_heads = t.kv_heads, .head_dim = t.head_dim};
}

int32_t read_window(ConfigReader& config, const std::string& field, int32_t fallback) {
  const bool written = config.has_key(field);
  const int64_t window = config.integer(field, written ? 0 : fallback);
  if (window < 0 || window > (int64_t(1) << 30)) config.refuse(field, "it must be a number of tokens");
  return int32_t(window);
}

std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t layers,
                                      const std::function<bool(int64_t layer)>& fallback) {
  const std::vector<std::string> types = config.texts("layer_types");
  if (!types.empty() && int64_t(types.size()) != layers)
    config.refuse("layer_types", fmt::format("one entry per layer ({}) is wanted", layers));
  std::vector<bool> sliding;
  for (int64_t layer = 0; layer < layers; ++layer) {
    if (types.empty()) {
      sliding.push_back(fallback(layer));
      continue;
    }
    const std::string& type = types[size_t(layer)];
    sliding.push_back(type == "sliding_attention");
    if (!sliding.back() && type != "full_attention")
      config.refuse("layer_types", "medley supports full_attention and sliding_attention here");
  }
  return sliding;
}

std::vector<int32_t> read_layer_windows(ConfigReader& config, int64_t layers,
                                        const std::function<bool(int64_t layer, int64_t max_window_layers)>& fallback) {
  const int32_t window = config.boolean("use_sliding_window", false) ? read_window(config, "sliding_window", 4096) : 0;
  config.ignore({"sliding_window"});  // without use_sliding_window it says nothing
  const int64_t bound = config.integer_or_zero("max_window_layers", 28);
  const bool written = !config.texts("layer_types").empty();
  const std::vector<bool> sliding =
      read_sliding_layers(config, layers, [&](int64_t layer) { return window > 0 && fallback(layer, bound); });
  std::vector<int32_t> windows;
  for (const bool slides : sliding) {
    if (written && slides && window == 0)
      config.refuse("layer_types", "sliding_attention needs use_sliding_window and a window");
    windows.push_back(slides ? window : 0);
  }
  return windows;
}

std::vector<int32_t> read_layer_windows(ConfigReader& config, int64_t layers) {
  return read_layer_windows(config, layers, [](int64_t layer, int64_t first) { return layer >= first; });
}

std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t layers, int64_t experts) {
  const int64_t step = config.integer("decoder_sparse_step", 1);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers");
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    sparse.push_back(!listed && experts > 0 && step > 0 && (layer + 1) % step == 0);
  }
  return sparse;
}

MoeSpec read_mixtral_experts(ConfigReader& config, int64_t hidden, Activation activation) {
  return {.hidden = hidden,
          .intermediate = config.integer("intermediate_size"),
          .rule = {.score = RouterScore::softmax,
                   .experts = int32_t(config.integer("num_local_experts", 8)),
                   .top_k = int32_t(config.integer("num_experts_per_tok", 2)),
                   .renormalize = true},
          .activation = activation,
          .gate = "w1",
          .up = "w3",
          .down = "w2"};
}

std::string layer_prefix(int64_t layer) {
  return fmt::format("model.layers.{}.", layer);
}

BlockSpec usual_block(const std::string& prefix, MixerSpec mixer, FeedForwardSpec feed_forward) {
  return {prefix + "input_layernorm.weight", std::move(mixer), prefix + "post_attention_layernorm.weight",
          std::move(feed_forward)};
}

}  // namespace medley
