#include "engine/engine_text.h"

#include "base/error.h"
#include "models/model_source.h"

namespace medley {

EngineText::EngineText(const ModelSource& model)
    : tokenizer_missing_(
          fmt::format("{} has no {}, so it takes and gives token ids only", model.name(), model.tokenizer_place())),
      template_missing_(fmt::format("{} has no chat template ({}); give a prompt instead", model.name(),
                                    model.chat_template_place())),
      tokenizer_(model.tokenizer()) {
  if (tokenizer_) chat_template_ = model.chat_template(*tokenizer_);
}

EngineText::Prompt EngineText::read(const GenerationRequest& request) const {
  const int given = int(!request.prompt.empty()) + int(!request.prompt_ids.empty()) + int(!request.messages.empty());
  if (given != 1)
    return {{}, fmt::format("{} of prompt, prompt_ids and messages are given; give exactly one, not empty", given)};
  if (!request.prompt_ids.empty()) {
    if (!request.sampling.stop.empty() && !tokenizer_) return {{}, "stop strings need text: " + tokenizer_missing_};
    return {request.prompt_ids, {}};
  }
  if (!tokenizer_) return {{}, tokenizer_missing_};
  if (!request.messages.empty()) return read_messages(request.messages);
  return {tokenizer_->encode(request.prompt, true), {}};
}

EngineText::Prompt EngineText::read_messages(const std::vector<Message>& messages) const {
  if (!chat_template_) return {{}, template_missing_};
  std::vector<ChatMessage> conversation;
  for (const Message& message : messages) conversation.push_back({message.role, message.content});
  const ChatTemplate::Result rendered = chat_template_->apply(conversation, true);
  if (!rendered.ok) return {{}, rendered.error};
  return {tokenizer_->encode(rendered.text, false), {}};
}

std::vector<int32_t> EngineText::encode(const std::string& text) const {
  if (!tokenizer_) throw Error(tokenizer_missing_);
  return tokenizer_->encode(text, true);
}

std::string EngineText::decode(const std::vector<int32_t>& ids) const {
  if (!tokenizer_) throw Error(tokenizer_missing_);
  return tokenizer_->decode(ids, true);
}

RequestText::RequestText(const EngineText& text, const SamplingParams& sampling)
    : stop_(sampling.stop, sampling.include_stop) {
  if (text.tokenizer()) decoder_.emplace(*text.tokenizer(), true);
}

RequestText::Piece RequestText::push(int32_t token) {
  if (!decoder_ || stopped_) return {};
  StopStrings::Result result = stop_.push(decoder_->push(token));
  stopped_ = result.stopped;
  return {std::move(result.text), result.stopped};
}

std::string RequestText::finish() {
  if (!decoder_ || stopped_) return {};
  StopStrings::Result rest = stop_.push(decoder_->finish());
  return rest.stopped ? rest.text : rest.text + stop_.finish();
}

}  // namespace medley
