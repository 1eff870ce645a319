#include "engine/engine_text.h"

#include "base/error.h"

namespace medley {

EngineText::EngineText(const std::filesystem::path& folder) : folder_(folder.string()) {
  if (!Tokenizer::exists(folder)) return;
  tokenizer_ = Tokenizer::load(folder);
  chat_template_ = ChatTemplate::load(folder, *tokenizer_);
}

std::string EngineText::missing_tokenizer() const {
  return fmt::format("{} has no tokenizer.json (nor tokenizer.model), so it takes and gives token ids only", folder_);
}

EngineText::Prompt EngineText::read(const GenerationRequest& request) const {
  const int given = int(!request.prompt.empty()) + int(!request.prompt_ids.empty()) + int(!request.messages.empty());
  if (given != 1)
    return {{}, fmt::format("{} of prompt, prompt_ids and messages are given; give exactly one, not empty", given)};
  if (!request.prompt_ids.empty()) {
    if (!request.sampling.stop.empty() && !tokenizer_) return {{}, "stop strings need text: " + missing_tokenizer()};
    return {request.prompt_ids, {}};
  }
  if (!tokenizer_) return {{}, missing_tokenizer()};
  if (!request.messages.empty()) return read_messages(request.messages);
  return {tokenizer_->encode(request.prompt, true), {}};
}

EngineText::Prompt EngineText::read_messages(const std::vector<Message>& messages) const {
  if (!chat_template_)
    return {{},
            fmt::format("{} has no chat template (chat_template in tokenizer_config.json, or chat_template.jinja); "
                        "give a prompt instead",
                        folder_)};
  std::vector<ChatMessage> conversation;
  for (const Message& message : messages) conversation.push_back({message.role, message.content});
  const ChatTemplate::Result rendered = chat_template_->apply(conversation, true);
  if (!rendered.ok) return {{}, rendered.error};
  return {tokenizer_->encode(rendered.text, false), {}};
}

std::vector<int32_t> EngineText::encode(const std::string& text) const {
  if (!tokenizer_) throw Error(missing_tokenizer());
  return tokenizer_->encode(text, true);
}

std::string EngineText::decode(const std::vector<int32_t>& ids) const {
  if (!tokenizer_) throw Error(missing_tokenizer());
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
