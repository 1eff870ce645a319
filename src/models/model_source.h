// What a model's path holds, whatever its form: a folder in the layout of a Hugging Face checkpoint, a config.json
// alone, a GGUF file, or a folder with one GGUF model in it. Everything is read when it is asked for.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace medley {

class ModelSource {
 public:
  virtual ~ModelSource() = default;

  virtual std::string name() const = 0;  // the folder or file

  // As config.json of the family; a GGUF file's is made from its metadata.
  virtual nlohmann::json config() const = 0;
  virtual std::string config_origin() const = 0;  // names it in messages
  // As generation_config.json; null when there is none.
  virtual nlohmann::json generation_config() const = 0;
  virtual std::string generation_origin() const = 0;

  virtual bool has_weights() const = 0;
  // Tensors under the family's names. Throws Error when there are none.
  virtual std::shared_ptr<const Checkpoint> checkpoint() const = 0;

  virtual bool has_tokenizer() const = 0;
  // Nothing without a tokenizer: the model takes and gives token ids only.
  virtual std::optional<Tokenizer> tokenizer() const = 0;
  virtual std::optional<ChatTemplate> chat_template(const Tokenizer& tokenizer) const = 0;
  // Where both were looked for: "tokenizer.json".
  virtual std::string tokenizer_place() const = 0;
  virtual std::string chat_template_place() const = 0;
};

// Throws Error when the path is not there or holds no model.
std::unique_ptr<ModelSource> open_model(const std::filesystem::path& path);

}  // namespace medley
