#include "models/model_source.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "models/gguf/source.h"

namespace medley {
namespace {

// A folder in the layout of a Hugging Face checkpoint, or a config.json.
class FolderSource final : public ModelSource {
 public:
  explicit FolderSource(const std::filesystem::path& path)
      : is_folder_(std::filesystem::is_directory(path)),
        folder_(is_folder_ ? path : path.parent_path()),
        config_(is_folder_ ? path / "config.json" : path) {}

  std::string name() const override { return (is_folder_ ? folder_ : config_).string(); }

  nlohmann::json config() const override {
    if (is_folder_ && !std::filesystem::exists(config_))
      fail("{}: has no config.json; a folder in the layout of a Hugging Face checkpoint, or a GGUF file, is wanted",
           folder_.string());
    return read_json(config_, JsonFloats::python);
  }
  std::string config_origin() const override { return config_.string(); }

  nlohmann::json generation_config() const override {
    return has(generation_name) ? read_json(folder_ / generation_name, JsonFloats::python) : nlohmann::json();
  }
  std::string generation_origin() const override { return (folder_ / generation_name).string(); }

  bool has_weights() const override { return has("model.safetensors") || has("model.safetensors.index.json"); }
  std::shared_ptr<const Checkpoint> checkpoint() const override { return std::make_shared<Checkpoint>(folder_); }

  bool has_tokenizer() const override { return is_folder_ && Tokenizer::exists(folder_); }
  std::optional<Tokenizer> tokenizer() const override {
    return has_tokenizer() ? std::optional(Tokenizer::load(folder_)) : std::nullopt;
  }
  std::optional<ChatTemplate> chat_template(const Tokenizer& tokenizer) const override {
    return ChatTemplate::load(folder_, tokenizer);
  }
  std::string tokenizer_place() const override { return "tokenizer.json (nor tokenizer.model)"; }
  std::string chat_template_place() const override {
    return "chat_template in tokenizer_config.json, or chat_template.jinja";
  }

 private:
  static constexpr const char* generation_name = "generation_config.json";
  // A config.json alone has nothing beside it that belongs to it.
  bool has(const char* name) const { return is_folder_ && std::filesystem::exists(folder_ / name); }

  bool is_folder_;
  std::filesystem::path folder_, config_;
};

// The GGUF model in a folder without a config.json: its only file, or the first of a split one.
std::filesystem::path gguf_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool later = name.find("-of-") != std::string::npos && name.find("-00001-of-") == std::string::npos;
    if (entry.path().extension() == ".gguf" && !later) files.push_back(entry.path());
  }
  if (files.size() > 1)
    fail("{}: has {} GGUF models; name one of them, {} for example", folder.string(), files.size(),
         std::min_element(files.begin(), files.end())->string());
  return files.empty() ? std::filesystem::path() : files[0];
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    fail("{}: is not there; a checkpoint's folder, a GGUF file or a config.json is wanted", path.string());
  if (!std::filesystem::is_directory(path)) {
    if (path.extension() == ".gguf") return open_gguf_model(path);
    return std::make_unique<FolderSource>(path);
  }
  const bool usual = std::filesystem::exists(path / "config.json");
  const std::filesystem::path file = usual ? std::filesystem::path() : gguf_in(path);
  if (!file.empty()) return open_gguf_model(file);
  return std::make_unique<FolderSource>(path);
}

}  // namespace medley
