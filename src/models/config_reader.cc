#include "models/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace medley {
namespace {

// Bookkeeping of training and of the library that wrote the file: no arithmetic depends on these in any family.
constexpr const char* bookkeeping[] = {
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "_name_or_path",
    "name_or_path",
    "auto_map",
    "use_cache",
    "initializer_range",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "attention_dropout",
    "hidden_dropout",
    "residual_dropout",
    "embd_pdrop",
    "attn_pdrop",
    "resid_pdrop",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "router_jitter_noise",
    "pretraining_tp",
    "torchscript",
    "return_dict",
    "use_return_dict",
    "id2label",
    "label2id",
    "problem_type",
    "_attn_implementation",
    "attn_implementation",
    "_from_model_config",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "license",
};

std::optional<double> as_number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  // How transformers 5 and Python's json write infinity (base/json.h turns the bare word into the first form).
  if (value.is_object() && value.size() == 1 && value.contains("__float__") && value["__float__"].is_string()) {
    const std::string& word = value["__float__"].get_ref<const std::string&>();
    if (word == "Infinity") return std::numeric_limits<double>::infinity();
    if (word == "-Infinity") return -std::numeric_limits<double>::infinity();
  }
  return std::nullopt;
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::json& object, std::string origin, std::string path)
    : object_(&object), origin_(std::move(origin)), path_(std::move(path)) {
  if (!object.is_object()) fail("{}: {} is not an object", origin_, path_.empty() ? "the file" : path_);
}

const nlohmann::json* ConfigReader::find(const std::string& field) {
  seen_.insert(field);
  const auto at = object_->find(field);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

bool ConfigReader::has(const std::string& field) const {
  const auto at = object_->find(field);
  return at != object_->end() && !at->is_null();
}

bool ConfigReader::has_key(const std::string& field) const {
  return object_->contains(field);
}

bool ConfigReader::is_text(const std::string& field) const {
  const auto at = object_->find(field);
  return at != object_->end() && at->is_string();
}

void ConfigReader::refuse(const std::string& field, const std::string& why) const {
  const auto at = object_->find(field);
  const std::string value = at == object_->end() ? "absent" : at->dump().substr(0, 200);
  fail("{}: {}{} is {}: {}", origin_, path_, field, value, why);
}

void ConfigReader::wrong_type(const std::string& field, const std::string& wanted) const {
  refuse(field, fmt::format("{} is wanted", wanted));
}

namespace {

// Above any size of a published model (the largest are contexts of 10 million tokens): products of two stay far from
// overflow, and a table of one row small.
constexpr int64_t largest_integer = int64_t(1) << 24;
// Layers make lists with an entry a head.
constexpr int64_t most_heads = int64_t(1) << 14;

// Sizes written as 64.0 occur; anything else that is not whole is a mistake.
std::optional<int64_t> as_integer(const nlohmann::json& value) {
  const bool whole = value.is_number_float() && value.get<double>() == std::floor(value.get<double>());
  if (!whole && !value.is_number_integer()) return std::nullopt;
  const double number = value.get<double>();
  return std::abs(number) <= double(largest_integer) ? int64_t(number) : number > 0 ? INT64_MAX : INT64_MIN;
}

}  // namespace

int64_t ConfigReader::integer_from(const std::string& field, int64_t least) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) refuse(field, "the model cannot be built without it");
  const std::optional<int64_t> number = as_integer(*value);
  if (!number) wrong_type(field, "a whole number");
  const int64_t most = field.ends_with("heads") ? most_heads : largest_integer;
  if (*number < least || *number > most) refuse(field, fmt::format("a number from {} to {} is wanted", least, most));
  return *number;
}

int64_t ConfigReader::integer(const std::string& field) {
  return integer_from(field, 1);
}

int64_t ConfigReader::integer(const std::string& field, int64_t fallback) {
  return find(field) == nullptr ? fallback : integer_from(field, std::min<int64_t>(fallback, 1));
}

int64_t ConfigReader::layers() {
  constexpr int64_t most = 10'000;
  const int64_t layers = integer("num_hidden_layers");
  if (layers > most) refuse("num_hidden_layers", fmt::format("at most {} are built", most));
  return layers;
}

int64_t ConfigReader::integer_or_zero(const std::string& field, int64_t fallback) {
  return find(field) == nullptr ? fallback : integer_from(field, 0);
}

std::optional<int64_t> ConfigReader::optional_integer(const std::string& field) {
  return find(field) == nullptr ? std::nullopt : std::optional(integer(field));
}

double ConfigReader::number(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) refuse(field, "the model cannot be built without it");
  const std::optional<double> number = as_number(*value);
  if (!number) wrong_type(field, "a number");
  return *number;
}

double ConfigReader::number(const std::string& field, double fallback) {
  return find(field) == nullptr ? fallback : number(field);
}

std::optional<double> ConfigReader::optional_number(const std::string& field) {
  return find(field) == nullptr ? std::nullopt : std::optional(number(field));
}

bool ConfigReader::boolean(const std::string& field, bool fallback) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) wrong_type(field, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) refuse(field, "the model cannot be built without it");
  if (!value->is_string()) wrong_type(field, "a string");
  return value->get<std::string>();
}

std::string ConfigReader::text(const std::string& field, const std::string& fallback) {
  return find(field) == nullptr ? fallback : text(field);
}

std::vector<int64_t> ConfigReader::integers(const std::string& field) {
  std::vector<int64_t> values;
  for (const double number : numbers(field)) {
    if (number != std::floor(number) || number < 0 || number > double(largest_integer))
      wrong_type(field, fmt::format("a list of whole numbers from 0 to {}", largest_integer));
    values.push_back(int64_t(number));
  }
  return values;
}

std::vector<int64_t> ConfigReader::integer_or_list(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return {};
  return value->is_array() ? integers(field) : std::vector<int64_t>{integer_from(field, 0)};
}

std::vector<double> ConfigReader::numbers(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return {};
  if (!value->is_array()) wrong_type(field, "a list of numbers");
  std::vector<double> values;
  for (const auto& entry : *value) {
    const std::optional<double> number = as_number(entry);
    if (!number) wrong_type(field, "a list of numbers");
    values.push_back(*number);
  }
  return values;
}

std::vector<std::string> ConfigReader::texts(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return {};
  if (!value->is_array()) wrong_type(field, "a list of strings");
  std::vector<std::string> values;
  for (const auto& entry : *value) {
    if (!entry.is_string()) wrong_type(field, "a list of strings");
    values.push_back(entry.get<std::string>());
  }
  return values;
}

std::optional<ConfigReader> ConfigReader::object(const std::string& field) {
  const nlohmann::json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) wrong_type(field, "an object");
  return ConfigReader(*value, origin_, path_ + field + ".");
}

void ConfigReader::require(const std::string& field, const char* value) {
  if (text(field, value) != value) refuse(field, fmt::format("medley supports \"{}\" only", value));
}

void ConfigReader::require(const std::string& field, bool value) {
  if (boolean(field, value) != value) refuse(field, fmt::format("medley supports {} only", value));
}

void ConfigReader::require(const std::string& field, int64_t value) {
  if (integer(field, value) != value) refuse(field, fmt::format("medley supports {} only", value));
}

void ConfigReader::ignore(std::initializer_list<const char*> fields) {
  seen_.insert(fields.begin(), fields.end());
}

void ConfigReader::finish() const {
  std::vector<std::string> unknown;
  for (const auto& [field, value] : object_->items()) {
    if (seen_.contains(field) || value.is_null()) continue;
    if (std::find(std::begin(bookkeeping), std::end(bookkeeping), field) != std::end(bookkeeping)) continue;
    unknown.push_back(fmt::format("{}{} = {}", path_, field, value.dump().substr(0, 80)));
  }
  if (unknown.empty()) return;
  fail(
      "{}: medley does not know what {} mean{} for this model and will not guess: {}. Remove {} if the arithmetic does "
      "not depend on {}.",
      origin_, unknown.size() == 1 ? "this field" : "these fields", unknown.size() == 1 ? "s" : "", join(unknown, ", "),
      unknown.size() == 1 ? "it" : "them", unknown.size() == 1 ? "it" : "them");
}

}  // namespace medley
