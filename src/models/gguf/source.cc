#include "models/gguf/source.h"

#include <nlohmann/json.hpp>

#include "models/gguf/architectures.h"
#include "models/gguf/vocabulary.h"

namespace medley {
namespace {

class GgufSource final : public ModelSource {
 public:
  explicit GgufSource(const std::filesystem::path& path)
      : checkpoint_(std::make_shared<Checkpoint>(open_gguf(path), [](const std::string&) { return std::string(); })),
        keys_(checkpoint_->gguf_files()),
        architecture_(&find_gguf_architecture(keys_)) {
    GgufTensors tensors(keys_, *checkpoint_);
    architecture_->tensors(tensors);
  }

  std::string name() const override { return file().path(); }

  nlohmann::json config() const override {
    nlohmann::json config = architecture_->config(keys_);
    const std::vector<int32_t> ends = read_gguf_end_tokens(file());
    if (!ends.empty()) config["eos_token_id"] = ends;
    return config;
  }
  std::string config_origin() const override { return file().path(); }

  // What the makers advise, where the file says so.
  nlohmann::json generation_config() const override {
    nlohmann::json config;
    const auto read = [&](const char* key, const char* field) {
      if (const GgufValue* value = file().find(fmt::format("general.sampling.{}", key)))
        config[field] = value->number();
    };
    read("temp", "temperature");
    read("top_p", "top_p");
    read("min_p", "min_p");
    if (const GgufValue* value = file().find("general.sampling.top_k")) config["top_k"] = value->integer();
    return config;
  }
  std::string generation_origin() const override { return file().path(); }

  bool has_weights() const override { return true; }
  std::shared_ptr<const Checkpoint> checkpoint() const override { return checkpoint_; }

  bool has_tokenizer() const override { return file().find("tokenizer.ggml.tokens") != nullptr; }
  std::optional<Tokenizer> tokenizer() const override {
    const auto vocabulary = read_gguf_vocabulary(file());
    return vocabulary ? std::optional(make_gguf_tokenizer(*vocabulary)) : std::nullopt;
  }
  std::optional<ChatTemplate> chat_template(const Tokenizer& tokenizer) const override {
    const GgufValue* value = file().find(template_key);
    if (value == nullptr) return std::nullopt;
    return ChatTemplate(value->string(), file().path() + ": " + template_key, tokenizer);
  }
  std::string tokenizer_place() const override { return "tokens (tokenizer.ggml.tokens)"; }
  std::string chat_template_place() const override { return template_key; }

 private:
  static constexpr const char* template_key = "tokenizer.chat_template";
  const GgufFile& file() const { return keys_.files().front(); }

  std::shared_ptr<Checkpoint> checkpoint_;  // owns the files
  GgufKeys keys_;
  const GgufArchitecture* architecture_;
};

}  // namespace

std::unique_ptr<ModelSource> open_gguf_model(const std::filesystem::path& path) {
  return std::make_unique<GgufSource>(path);
}

}  // namespace medley
