#include "models/gguf/keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {
namespace {

bool all_float(const GgufKeys& keys) {
  for (const GgufFile& file : keys.files())
    for (const auto& [name, tensor] : file.tensors())
      if (tensor.view.dtype != DType::f32) return false;
  return true;
}

nlohmann::json stack_config(const GgufKeys& keys, const std::string& model_type) {
  const StoredTensor* embedding = keys.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->view.rank != 2)
    fail("{}: tensor token_embd.weight, a matrix of one row for each token, is wanted", keys.where());
  return {{"model_type", model_type},
          {"vocab_size", embedding->view.size(0)},
          {"hidden_size", keys.integer("embedding_length")},
          {"num_hidden_layers", keys.layers()},
          {"tie_word_embeddings", keys.tensor("output.weight") == nullptr},
          {"dtype", all_float(keys) ? "float32" : "bfloat16"}};
}

}  // namespace

GgufKeys::GgufKeys(const std::vector<GgufFile>& files) : files_(&files) {
  const GgufFile& first = files.at(0);
  const GgufValue* type = first.find("general.type");
  if (type != nullptr && type->string() != "model")
    fail("{}: general.type is \"{}\"; medley runs models (\"model\")", first.path(), type->string());
  architecture_ = first.value("general.architecture").string();
  constexpr int64_t most_layers = 10'000;
  const int64_t blocks = integer("block_count"), later = integer("nextn_predict_layers", 0);
  if (blocks < 1 || blocks > most_layers || later < 0 || later >= blocks)
    fail("{}: {}.block_count {} with {} layers that predict further tokens; 1 to {} layers are wanted", where(),
         architecture_, blocks, later, most_layers);
  layers_ = blocks - later;
}

const GgufValue* GgufKeys::find(const std::string& key) const {
  return files_->front().find(architecture_ + "." + key);
}

int64_t GgufKeys::integer(const std::string& key) const {
  return files_->front().value(architecture_ + "." + key).integer();
}

int64_t GgufKeys::integer(const std::string& key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double GgufKeys::number(const std::string& key) const {
  return files_->front().value(architecture_ + "." + key).number();
}

double GgufKeys::number(const std::string& key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool GgufKeys::boolean(const std::string& key, bool fallback) const {
  const GgufValue* value = find(key);
  return value == nullptr ? fallback : value->boolean();
}

std::string GgufKeys::text(const std::string& key, const std::string& fallback) const {
  const GgufValue* value = find(key);
  return value == nullptr ? fallback : std::string(value->string());
}

std::vector<int64_t> GgufKeys::per_layer(const std::string& key) const {
  const GgufValue& value = files_->front().value(architecture_ + "." + key);
  if (value.type() != GgufType::array) return std::vector<int64_t>(size_t(layers_), value.integer());
  std::vector<int64_t> numbers = value.integers();
  if (int64_t(numbers.size()) < layers_)
    fail("{}: {}.{} has {} numbers for {} layers", where(), architecture_, key, numbers.size(), layers_);
  numbers.resize(size_t(layers_));
  return numbers;
}

std::vector<int64_t> GgufKeys::per_layer(const std::string& key, int64_t fallback) const {
  return has(key) ? per_layer(key) : std::vector<int64_t>(size_t(layers_), fallback);
}

const StoredTensor* GgufKeys::tensor(const std::string& name) const {
  for (const GgufFile& file : *files_)
    if (const auto at = file.tensors().find(name); at != file.tensors().end()) return &at->second;
  return nullptr;
}

bool GgufKeys::in_layer(int64_t layer, const std::string& name) const {
  return tensor(fmt::format("blk.{}.{}", layer, name)) != nullptr;
}

nlohmann::json rope_config(const GgufKeys& keys, double theta, bool truncate) {
  nlohmann::json rope{{"rope_theta", theta}, {"rope_type", "default"}};
  if (const StoredTensor* factors = keys.tensor("rope_freqs.weight")) {
    // Llama 3's scaling, as the numbers it comes to: what each frequency is divided by.
    if (factors->view.dtype != DType::f32 || factors->view.rank != 1)
      fail("{}: tensor rope_freqs.weight is {}; one row of float32 is wanted", keys.where(), factors->dtype_name);
    const float* values = factors->view.as<float>();
    rope["rope_type"] = "factors";
    rope["factors"] = std::vector<float>(values, values + factors->view.elements());
    return rope;
  }
  const std::string type = keys.text("rope.scaling.type", keys.has("rope.scale_linear") ? "linear" : "none");
  if (type == "none") return rope;
  if (type != "linear" && type != "yarn")
    fail("{}: rope.scaling.type is \"{}\"; medley supports linear and yarn", keys.where(), type);
  rope["rope_type"] = type;
  rope["factor"] = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1));
  if (type == "linear") return rope;
  rope["original_max_position_embeddings"] =
      keys.integer("rope.scaling.original_context_length", keys.integer("context_length"));
  rope["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast", 32);
  rope["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow", 1);
  if (!truncate) rope["truncate"] = false;
  if (keys.has("rope.scaling.yarn_attn_factor"))
    rope["attention_factor"] = keys.number("rope.scaling.yarn_attn_factor");
  return rope;
}

nlohmann::json usual_config(const GgufKeys& keys, const std::string& model_type) {
  nlohmann::json config = stack_config(keys, model_type);
  const std::vector<int64_t> heads = keys.per_layer("attention.head_count");
  const std::vector<int64_t> kv_heads = keys.per_layer("attention.head_count_kv", heads[0]);
  const int64_t most = *std::max_element(heads.begin(), heads.end());
  const int64_t most_kv = *std::max_element(kv_heads.begin(), kv_heads.end());
  for (const int64_t count : kv_heads)
    if (count != 0 && count != most_kv)
      fail("{}: attention.head_count_kv differs between attention layers; medley wants one number", keys.where());
  const int64_t head_dim = keys.integer("attention.key_length", most > 0 ? keys.integer("embedding_length") / most : 0);
  const bool latent = keys.has("attention.kv_lora_rank");  // whose heads are described by other keys
  if (!latent && keys.integer("attention.value_length", head_dim) != head_dim)
    fail("{}: attention.key_length and attention.value_length differ; medley wants them equal here", keys.where());
  const int64_t rotary = keys.integer("rope.dimension_count", head_dim);
  config["num_attention_heads"] = most;
  config["num_key_value_heads"] = most_kv;
  config["head_dim"] = head_dim;
  config["max_position_embeddings"] = keys.integer("context_length", 0);
  config["rms_norm_eps"] = keys.number("attention.layer_norm_rms_epsilon", 1e-5);
  const std::vector<int64_t> inner = keys.per_layer("feed_forward_length", 0);
  config["intermediate_size"] = *std::max_element(inner.begin(), inner.end());
  config["rope_parameters"] = rope_config(keys, keys.number("rope.freq_base", 10000));
  if (!latent && rotary != head_dim)
    config["rope_parameters"]["partial_rotary_factor"] = double(rotary) / double(head_dim);
  return config;
}

nlohmann::json state_config(const GgufKeys& keys, const std::string& model_type) {
  nlohmann::json config = stack_config(keys, model_type);
  config["layer_norm_epsilon"] = keys.number("attention.layer_norm_rms_epsilon", 1e-5);
  config["conv_kernel"] = keys.integer("ssm.conv_kernel");
  config["state_size"] = keys.integer("ssm.state_size");
  config["use_bias"] = keys.in_layer(0, "ssm_in.bias");
  config["use_conv_bias"] = keys.in_layer(0, "ssm_conv1d.bias");
  return config;
}

GgufMamba2 read_mamba2(const GgufKeys& keys) {
  GgufMamba2 sizes{};
  sizes.inner = keys.integer("ssm.inner_size");
  sizes.heads = keys.integer("ssm.time_step_rank");
  if (sizes.heads <= 0 || sizes.inner % sizes.heads != 0)
    fail("{}: ssm.inner_size {} is no multiple of ssm.time_step_rank {}, the number of heads", keys.where(),
         sizes.inner, sizes.heads);
  sizes.head_dim = sizes.inner / sizes.heads;
  sizes.states = keys.integer("ssm.state_size");
  sizes.groups = keys.integer("ssm.group_count", 1);
  sizes.conv_width = keys.integer("ssm.conv_kernel");
  return sizes;
}

nlohmann::json layer_types(const std::vector<bool>& is, const char* yes, const char* no) {
  nlohmann::json types = nlohmann::json::array();
  for (const bool one : is) types.push_back(one ? yes : no);
  return types;
}

std::vector<bool> attention_layers(const GgufKeys& keys) {
  std::vector<bool> attention;
  for (const int64_t heads : keys.per_layer("attention.head_count_kv")) attention.push_back(heads > 0);
  return attention;
}

std::vector<bool> sliding_layers(const GgufKeys& keys, int64_t period) {
  const std::string key = "attention.sliding_window_pattern";
  std::vector<bool> sliding;
  const bool listed = keys.has(key) && keys.files()[0].value(keys.architecture() + "." + key).type() == GgufType::array;
  if (listed) {
    for (const int64_t one : keys.per_layer(key)) sliding.push_back(one != 0);
    return sliding;
  }
  period = keys.integer(key, period);
  if (period < 0) fail("{}: {} is {}", keys.where(), key, period);
  for (int64_t layer = 0; layer < keys.layers(); ++layer) sliding.push_back(period > 0 && (layer + 1) % period != 0);
  return sliding;
}

}  // namespace medley
