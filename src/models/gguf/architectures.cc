#include "models/gguf/architectures.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace medley {
namespace {

// A new architecture is one file and one line here.
const GgufArchitecture* const architectures[] = {
    &gguf_deepseek2, &gguf_gemma3, &gguf_gpt_oss, &gguf_granitehybrid, &gguf_jamba,      &gguf_lfm2,
    &gguf_lfm2moe,   &gguf_llama,  &gguf_mamba,   &gguf_mamba2,        &gguf_nemotron_h, &gguf_nemotron_h_moe,
    &gguf_olmoe,     &gguf_qwen2,  &gguf_qwen3,   &gguf_qwen3moe,      &gguf_qwen3next,
};

// Tensors of the rule's name in layer N, with and without ".weight" and ".bias"; the first rule for a tensor counts.
void add_rule(GgufTensors& tensors, const GgufNames& names, int64_t layer, const GgufRule& rule) {
  const std::string from = fmt::format("blk.{}.{}", layer, rule.from);
  const std::string to = fmt::format("{}{}.{}", names.layers, layer, rule.to);
  for (const char* suffix : {"", ".weight", ".bias"})
    if (!tensors.used(from + suffix)) tensors.add(from + suffix, to + suffix, rule.change);
}

// The number behind "blk." of a name; -1: it is of no layer.
int64_t layer_of(const std::string& name) {
  if (!name.starts_with("blk.")) return -1;
  const size_t end = name.find_first_not_of("0123456789", 4);
  return end == 4 || end == std::string::npos || end > 10 ? -1 : std::stoll(name.substr(4, end - 4));
}

}  // namespace

const GgufArchitecture& find_gguf_architecture(const GgufKeys& keys) {
  for (const GgufArchitecture* architecture : architectures)
    if (keys.architecture() == architecture->name) return *architecture;
  fail("{}: general.architecture \"{}\" is not known; medley runs {}", keys.where(), keys.architecture(),
       join(known_gguf_architectures(), ", "));
}

std::vector<std::string> known_gguf_architectures() {
  std::vector<std::string> names;
  for (const GgufArchitecture* architecture : architectures) names.emplace_back(architecture->name);
  return names;
}

void add_tensors(GgufTensors& tensors, const GgufNames& names, std::span<const GgufRule> rules) {
  const GgufKeys& keys = tensors.keys();
  tensors.add("token_embd.weight", names.embedding);
  tensors.add("output.weight", "lm_head.weight");
  tensors.add(names.stored_final_norm, names.final_norm, names.norm_change);
  tensors.skip("rope_freqs.weight");  // part of the config
  for (int64_t layer = 0; layer < keys.layers(); ++layer)
    for (const GgufRule& rule : rules) add_rule(tensors, names, layer, rule);
  // What no rule knows stays under its own name, so that loading names it. A multi-token-prediction module behind the
  // last layer is left out.
  for (const GgufFile& file : keys.files())
    for (const auto& [name, tensor] : file.tensors())
      if (!tensors.used(name) && layer_of(name) < keys.layers()) tensors.add(name, name);
}

std::vector<GgufRule> attention_rules(GgufChange q, GgufChange k) {
  return {{"attn_q", "self_attn.q_proj", q},   {"attn_k", "self_attn.k_proj", k},
          {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
          {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
          {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"}};
}

std::vector<GgufRule> mlp_rules() {
  return {{"ffn_gate", "mlp.gate_proj"},
          {"ffn_up", "mlp.up_proj"},
          {"ffn_down", "mlp.down_proj"},
          {"ffn_gate_inp", "mlp.gate"},
          {"ffn_gate_exps.weight", "mlp.experts.E.gate_proj.weight", GgufChange::experts},
          {"ffn_up_exps.weight", "mlp.experts.E.up_proj.weight", GgufChange::experts},
          {"ffn_down_exps.weight", "mlp.experts.E.down_proj.weight", GgufChange::experts}};
}

std::vector<GgufRule> mamba_rules(const std::string& place) {
  return {{"ssm_in", place + "in_proj"},
          {"ssm_conv1d.weight", place + "conv1d.weight", GgufChange::unsqueeze},
          {"ssm_conv1d.bias", place + "conv1d.bias"},
          {"ssm_x", place + "x_proj"},
          {"ssm_a", place + "A_log", GgufChange::log_of_negative},
          {"ssm_d", place + "D", GgufChange::flat},
          {"ssm_norm.weight", place + "norm.weight", GgufChange::flat},
          {"ssm_out", place + "out_proj"}};
}

std::vector<GgufRule> joined(std::initializer_list<std::vector<GgufRule>> parts) {
  std::vector<GgufRule> all;
  for (const std::vector<GgufRule>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace medley
