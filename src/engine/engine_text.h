// Text on both sides of the token loop: prompts to ids, tokens to text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "medley/engine.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/stop_strings.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"

namespace medley {

class ModelSource;

// A model's tokenizer and chat template; a model without a tokenizer runs on token ids alone. Safe to use from
// several threads.
class EngineText {
 public:
  // Throws Error for files that are there and wrong.
  explicit EngineText(const ModelSource& model);

  struct Prompt {
    std::vector<int32_t> ids;
    std::string error;  // why the request cannot be read
  };
  Prompt read(const GenerationRequest& request) const;

  // Both throw Error when there is no tokenizer.
  std::vector<int32_t> encode(const std::string& text) const;
  std::string decode(const std::vector<int32_t>& ids) const;

  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

 private:
  Prompt read_messages(const std::vector<Message>& messages) const;

  std::string tokenizer_missing_, template_missing_;  // what to say then
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
};

// The text of one request as its tokens come.
class RequestText {
 public:
  RequestText(const EngineText& text, const SamplingParams& sampling);

  struct Piece {
    std::string text;
    bool stopped = false;  // a stop string is complete: the request ends here
  };
  Piece push(int32_t token);
  std::string finish();  // what was held back; call once, after the last push

 private:
  std::optional<StreamDecoder> decoder_;  // none without a tokenizer
  StopStrings stop_;
  bool stopped_ = false;
};

}  // namespace medley
