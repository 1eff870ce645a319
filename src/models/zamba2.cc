// Zamba2 (Glorioso et al. 2024): Mamba2 layers; in the hybrid ones a shared transformer block, which reads the
// embedding too, adds to the Mamba2's input.
#include <cmath>
#include <limits>

#include "models/families.h"
#include "models/rope_config.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

Mamba2Spec read_mixer(ConfigReader& config, int64_t hidden) {
  Mamba2Spec mamba{.hidden = hidden,
                   .heads = config.integer("n_mamba_heads", 8),
                   .states = config.integer("mamba_d_state", 64),
                   .groups = config.integer("mamba_ngroups", 1),
                   .conv_width = config.integer("mamba_d_conv", 4),
                   .proj_bias = config.boolean("add_bias_linear", false),
                   .norm_eps = 1e-5f,
                   .norm_by_group = true};
  const int64_t inner = config.integer("mamba_expand", 2) * hidden;
  if (mamba.heads <= 0 || inner % mamba.heads != 0)
    config.refuse("n_mamba_heads", fmt::format("it must divide the layer's {} channels", inner));
  mamba.head_dim = inner / mamba.heads;
  mamba.out_bias = mamba.proj_bias;
  mamba.dt_min = float(config.number("time_step_min", 0.001));
  mamba.dt_max = std::numeric_limits<float>::infinity();
  config.require("mamba_headdim", mamba.head_dim);
  config.require("use_conv_bias", true);
  config.ignore({"chunk_size", "time_step_max", "time_step_floor", "use_mamba_kernels", "use_mem_eff_path"});
  return mamba;
}

// One block; its place is set per layer.
SharedTransformerSpec read_shared(ConfigReader& config, const DecoderSpec& spec) {
  const int64_t hidden = spec.info.hidden_size, heads = config.integer("num_attention_heads", 32);
  if (heads <= 0 || 2 * hidden % heads != 0)
    config.refuse("num_attention_heads", fmt::format("it must divide twice the hidden size, {}", 2 * hidden));
  SharedTransformerSpec shared{.hidden = hidden, .norm = spec.norm};
  GqaSpec& attention = shared.attention;
  attention.hidden = 2 * hidden;
  attention.out = hidden;
  attention.heads = heads;
  attention.kv_heads = config.integer("num_key_value_heads", heads);
  attention.head_dim = 2 * hidden / heads;
  attention.scale = float(1 / std::sqrt(double(attention.head_dim) / 2));
  attention.rope = config.boolean("use_mem_rope", false) ? 0 : -1;
  const int64_t rank = config.integer("adapter_rank", 128);
  attention.adapter_rank = config.boolean("use_shared_attention_adapter", false) ? rank : 0;
  if (attention.adapter_rank > 0 && attention.kv_heads != heads)
    config.refuse("num_key_value_heads", "with use_shared_attention_adapter it must be num_attention_heads");
  shared.mlp = {.hidden = hidden,
                .intermediate = config.integer("intermediate_size", 4 * hidden),
                .activation = config.has("hidden_act") ? read_activation(config) : Activation::gelu,
                .bias = config.boolean("add_bias_linear", false),
                .gate_over_up = "gate_up_proj",
                .adapter_rank = rank};
  config.require("attention_hidden_size", 2 * hidden);
  config.require("attention_head_dim", attention.head_dim);
  config.require("kv_channels", hidden / heads);
  config.require("num_query_groups", heads);
  return shared;
}

// Per layer: does it have a transformer block?
std::vector<bool> read_hybrid_layers(ConfigReader& config) {
  const std::vector<std::string> types = config.texts("layers_block_type");
  const int64_t layers = config.layers();
  if (int64_t(types.size()) != layers)
    config.refuse("layers_block_type", fmt::format("one entry per layer ({}) is wanted", layers));
  std::vector<bool> hybrid;
  std::vector<int64_t> ids;
  for (const std::string& type : types) {
    hybrid.push_back(type == "hybrid");
    if (hybrid.back()) ids.push_back(int64_t(hybrid.size()) - 1);
    if (!hybrid.back() && type != "linear_attention" && type != "mamba")
      config.refuse("layers_block_type", fmt::format("medley does not know \"{}\" here", type));
  }
  if (config.has("hybrid_layer_ids") && config.integers("hybrid_layer_ids") != ids)
    config.refuse("hybrid_layer_ids", "it must list the hybrid layers of layers_block_type");
  return hybrid;
}

}  // namespace

std::unique_ptr<Model> make_zamba2(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "zamba2");
  spec.tied = config.boolean("tie_word_embeddings", true);
  spec.final_norm = "model.final_layernorm.weight";
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-5));
  const Mamba2Spec mamba = read_mixer(config, spec.info.hidden_size);
  const SharedTransformerSpec shared = read_shared(config, spec);
  const RopeSpec rope = read_rope(config, shared.attention.head_dim);
  if (shared.attention.rope >= 0) spec.ropes = {rope};
  const std::vector<bool> hybrid = read_hybrid_layers(config);
  const int64_t blocks = config.integer("num_mem_blocks", 1);
  if (blocks <= 0) config.refuse("num_mem_blocks", "it must be above 0");
  config.ignore({"num_logits_to_keep", "use_long_context"});
  std::vector<std::string> homes;  // of the blocks' weights: the layers that use them first
  int64_t use = 0;
  for (int64_t layer = 0; layer < int64_t(hybrid.size()); ++layer) {
    const std::string at = layer_prefix(layer), inner = hybrid[size_t(layer)] ? at + "mamba_decoder." : at;
    BlockSpec block{.mixer_norm = inner + "input_layernorm.weight", .mixer = mamba.at(inner + "mamba.")};
    if (hybrid[size_t(layer)]) {
      if (int64_t(homes.size()) < blocks) homes.push_back(at + "shared_transformer.");
      SharedTransformerSpec transformer = shared;
      transformer.prefix = homes[size_t(use % blocks)];
      transformer.projection = at + "linear.weight";
      transformer.attention.prefix = transformer.prefix + "self_attn.";
      transformer.attention.adapter = fmt::format("_adapter_list.{}.", use);
      transformer.mlp.prefix = transformer.prefix + "feed_forward.";
      transformer.mlp.adapter = fmt::format("gate_up_proj_adapter_list.{}.", use);
      block.aside = std::move(transformer);
      ++use;
    }
    spec.blocks.push_back(std::move(block));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
