// DeepSeek-V3.2 (DeepSeek-AI 2025): V3 with sparse attention. A lightning indexer in every layer chooses index_topk
// keys.
#include "models/deepseek.h"
#include "models/families.h"

namespace medley {

std::unique_ptr<Model> make_deepseek_v32(ConfigReader& config) {
  DecoderSpec spec = read_stack(config, "deepseek_v32");
  spec.norm.eps = float(config.number("rms_norm_eps", 1e-6));
  const DeepseekRouting routing =
      read_v3_routing(config, {.experts = 256, .top_k = 8, .groups = 8, .top_groups = 4, .scaling = 2.5f});
  MlaSpec mla = read_mla(config, spec);
  if (!mla.q_lora_rank) config.refuse("q_lora_rank", "the indexer's queries come from the low-rank query");
  // The same angles twice: latent attention pairs neighbours, the indexer halves.
  const RopeSpec rope = read_rope(config, mla.qk_rope_head_dim);
  spec.ropes = {rope, rope};
  spec.ropes[0].interleaved = true;
  mla.indexer = IndexerSpec{.hidden = mla.hidden,
                            .q_in = *mla.q_lora_rank,
                            .heads = config.integer("index_n_heads", 64),
                            .head_dim = config.integer("index_head_dim", 128),
                            .top_k = config.integer("index_topk", 2048),
                            .rope = 1};
  if (mla.indexer->head_dim < rope.dim)
    config.refuse("index_head_dim", fmt::format("qk_rope_head_dim {} of it are rotated", rope.dim));
  if (mla.indexer->top_k <= 0) config.refuse("index_topk", "it must be above 0");
  for (const std::string& type : config.texts("layer_types"))
    if (type != "deepseek_sparse_attention") config.refuse("layer_types", "medley supports deepseek_sparse_attention");
  config.require("mlp_bias", false);
  add_deepseek_layers(config, spec, routing, [&](const std::string& prefix) {
    MlaSpec attention = mla;
    attention.prefix = prefix;
    attention.indexer->prefix = prefix + "indexer.";
    return attention;
  });
  return make_decoder(std::move(spec));
}

}  // namespace medley
