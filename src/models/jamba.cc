// Jamba (Lieber et al. 2024): Mamba layers with an attention layer (without rope) every attn_layer_period, a mixture
// of experts every expert_layer_period.
#include "models/families.h"
#include "models/state_space_config.h"

namespace medley {
namespace {

// A period and an offset below it.
struct Period {
  int64_t period, offset;
  bool hits(int64_t layer) const { return layer % period == offset; }
};

Period read_period(ConfigReader& config, const std::string& name, int64_t period, int64_t offset) {
  const Period read{config.integer(name + "_period", period), config.integer_or_zero(name + "_offset", offset)};
  if (read.period <= 0 || read.offset < 0 || read.offset >= read.period)
    config.refuse(name + "_offset", fmt::format("it must be below {}_period", name));
  return read;
}

}  // namespace

std::unique_ptr<Model> make_jamba(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "jamba");
  spec.final_norm = "model.final_layernorm.weight";
  const TransformerConfig t = read_transformer(config);
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  const Period attention_layers = read_period(config, "attn_layer", 8, 4);
  const Period expert_layers = read_period(config, "expert_layer", 2, 1);
  const Activation activation = read_activation(config);
  const int64_t inner = config.integer("intermediate_size");
  const MambaSpec mamba{.hidden = t.hidden,
                        .channels = config.integer("mamba_expand", 2) * t.hidden,
                        .states = config.integer("mamba_d_state", 16),
                        .conv_width = config.integer("mamba_d_conv", 4),
                        .dt_rank = read_dt_rank(config, "mamba_dt_rank", t.hidden),
                        .conv_bias = config.boolean("mamba_conv_bias", true),
                        .proj_bias = config.boolean("mamba_proj_bias", false),
                        .parameter_norms = spec.norm.eps};
  const MlpSpec mlp{.hidden = t.hidden, .intermediate = inner, .activation = activation};
  const MoeSpec moe{.hidden = t.hidden,
                    .intermediate = inner,
                    .rule = {.score = RouterScore::softmax,
                             .experts = int32_t(config.integer("num_experts", 16)),
                             .top_k = int32_t(config.integer("num_experts_per_tok", 2))},
                    .activation = activation,
                    .router = "router.weight"};
  // Which of transformers' own loops runs the scan.
  config.ignore({"use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep",
                 "calc_logits_for_entire_prompt"});
  config.require("mamba_inner_layernorms", true);
  config.require("sliding_window", int64_t(0));
  config.require("rope_theta", int64_t(0));
  const int64_t layers = t.layers;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string at = layer_prefix(layer);
    BlockSpec block{at + "input_layernorm.weight", {}, at + "pre_ff_layernorm.weight", {}};
    if (attention_layers.hits(layer)) {
      GqaSpec attention = usual_attention(t, at + "self_attn.");
      attention.rope = -1;
      block.mixer = attention;
    } else {
      MambaSpec mixer = mamba;
      mixer.prefix = at + "mamba.";
      block.mixer = mixer;
    }
    const bool sparse = moe.rule.experts > 1 && expert_layers.hits(layer);
    const std::string inner_at = at + "feed_forward.";
    block.feed_forward = sparse ? FeedForwardSpec(moe.at(inner_at)) : FeedForwardSpec(mlp.at(inner_at));
    spec.blocks.push_back(std::move(block));
  }
  return make_decoder(std::move(spec));
}

}  // namespace medley
