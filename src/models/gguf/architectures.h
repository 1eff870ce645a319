// Which GGUF architectures medley runs, as which family, and how their files differ from Hugging Face's checkpoints.
//
// An architecture is a function that makes a config.json of the metadata, and rules that give the tensors of a layer
// the names the family reads. docs/ADDING.md has the recipe for another one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/gguf/keys.h"
#include "models/gguf/tensors.h"

namespace medley {

struct GgufArchitecture {
  const char* name;  // general.architecture
  nlohmann::json (*config)(const GgufKeys& keys);
  // Adds all tensors of the file.
  void (*tensors)(GgufTensors& tensors);
};

// Throws Error with the list of the known ones.
const GgufArchitecture& find_gguf_architecture(const GgufKeys& keys);
std::vector<std::string> known_gguf_architectures();

// What most architectures' tensors() is: names outside the layers, then the rules for each layer.
struct GgufNames {
  std::string embedding = "model.embed_tokens.weight";
  std::string final_norm = "model.norm.weight";
  std::string stored_final_norm = "output_norm.weight";
  std::string layers = "model.layers.";  // "model.layers.N." is where layer N's names begin
  GgufChange norm_change = GgufChange::none;
};
void add_tensors(GgufTensors& tensors, const GgufNames& names, std::span<const GgufRule> rules);
// Rules of attention (q, k, v, o, the norms of q and k), and of a gated MLP and experts under "mlp.".
std::vector<GgufRule> attention_rules(GgufChange q = GgufChange::none, GgufChange k = GgufChange::none);
std::vector<GgufRule> mlp_rules();
// Mamba's and Mamba2's tensors at "mixer." or "mamba.".
std::vector<GgufRule> mamba_rules(const std::string& place);
std::vector<GgufRule> joined(std::initializer_list<std::vector<GgufRule>> parts);

// One file each in this folder.
extern const GgufArchitecture gguf_llama, gguf_qwen2, gguf_qwen3, gguf_qwen3moe, gguf_olmoe, gguf_gemma3, gguf_gpt_oss,
    gguf_deepseek2, gguf_mamba, gguf_mamba2, gguf_jamba, gguf_granitehybrid, gguf_lfm2, gguf_lfm2moe, gguf_nemotron_h,
    gguf_nemotron_h_moe, gguf_qwen3next;

}  // namespace medley
