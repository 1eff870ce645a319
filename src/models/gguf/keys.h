// The metadata of a GGUF file as an architecture's file in this folder reads it: keys without the architecture's name
// in front ("block_count" for "llama.block_count"), fields under Hugging Face's names out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weights/gguf.h"

namespace medley {

class GgufKeys {
 public:
  // `files` outlive it; the first one's metadata counts.
  explicit GgufKeys(const std::vector<GgufFile>& files);

  const std::string& architecture() const { return architecture_; }
  const std::string& where() const { return files_->front().path(); }

  bool has(const std::string& key) const { return find(key) != nullptr; }
  // Without a fallback the key must be there; Error names file and key.
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t fallback) const;
  double number(const std::string& key) const;
  double number(const std::string& key, double fallback) const;
  bool boolean(const std::string& key, bool fallback) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  // One number for all layers, or one for each; layers of a later multi-token-prediction module are left out.
  std::vector<int64_t> per_layer(const std::string& key) const;
  std::vector<int64_t> per_layer(const std::string& key, int64_t fallback) const;

  int64_t layers() const { return layers_; }  // without those of multi-token prediction
  // A tensor under the file's own name; null: not there.
  const StoredTensor* tensor(const std::string& name) const;
  // Is this tensor ("ffn_gate_inp.weight") in the layer?
  bool in_layer(int64_t layer, const std::string& name) const;
  const std::vector<GgufFile>& files() const { return *files_; }

 private:
  const GgufValue* find(const std::string& key) const;

  const std::vector<GgufFile>* files_;
  std::string architecture_;
  int64_t layers_ = 0;
};

// Fields that nearly all families read: sizes, norms' epsilon, the rope, whether the head is the embedding.
nlohmann::json usual_config(const GgufKeys& keys, const std::string& model_type);
// The same for families that are all state: no heads, no rope.
nlohmann::json state_config(const GgufKeys& keys, const std::string& model_type);
// rope_parameters of a rope with this base; `truncate`: YaRN rounds the ends of its ramp (all but gpt-oss).
nlohmann::json rope_config(const GgufKeys& keys, double theta, bool truncate = true);
// Mamba2's sizes as granitemoehybrid and nemotron_h name them differ; these are what both are made from.
struct GgufMamba2 {
  int64_t heads, head_dim, states, groups, conv_width, inner;
};
GgufMamba2 read_mamba2(const GgufKeys& keys);

// layer_types from what each layer is.
nlohmann::json layer_types(const std::vector<bool>& is, const char* yes, const char* no);
// Layers with key heads are attention, the others state.
std::vector<bool> attention_layers(const GgufKeys& keys);
// Layers with a window: attention.sliding_window_pattern, else all but every `period`th.
std::vector<bool> sliding_layers(const GgufKeys& keys, int64_t period);

}  // namespace medley
