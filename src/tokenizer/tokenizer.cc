#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_versions.h"

namespace medley {

std::unique_ptr<EncodeScratch> ScratchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      auto scratch = std::move(free_.back());
      free_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<EncodeScratch>();
}

void ScratchPool::put(std::unique_ptr<EncodeScratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

std::optional<std::string_view> TokenizerParts::token(int32_t id) const {
  if (const AddedToken* token = added.find(id)) return token->shown;
  return model->vocabulary().token(id);
}

std::optional<int32_t> TokenizerParts::id_of(std::string_view token) const {
  if (const AddedToken* found = added.find(token)) return found->id;
  return model->vocabulary().find(token);
}

namespace {

class Encoder {
 public:
  Encoder(const TokenizerParts& parts, EncodeScratch& scratch, std::vector<int32_t>& out)
      : parts_(parts), scratch_(scratch), out_(out) {}

  void run(std::string_view text) {
    if (!unicode::is_valid(text)) text = scratch_.repaired = unicode::repaired(text);
    parts_.added.split(text, false, scratch_.raw_parts);
    for (const auto& part : scratch_.raw_parts) {
      if (part.id >= 0)
        out_.push_back(part.id);
      else
        normalize(text.substr(part.begin, part.end - part.begin), part.begin == 0);
    }
  }

 private:
  void normalize(std::string_view text, bool at_start) {
    if (parts_.normalizer) {
      scratch_.normalized = text;
      parts_.normalizer->apply_part(scratch_.normalized, at_start);
      text = scratch_.normalized;
    }
    if (!parts_.added.any(true)) return words({text, at_start});
    parts_.added.split(text, true, scratch_.normalized_parts);
    for (const auto& part : scratch_.normalized_parts) {
      if (part.id >= 0)
        out_.push_back(part.id);
      else
        words({text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0});
    }
  }

  void words(Piece piece) {
    piece.needs_stand_ins = !parts_.pre_tokenizer.empty() && unicode::needs_stand_ins(piece.text);
    const auto encode_word = [&](const Piece& word) { parts_.model->encode(word.text, scratch_.model, out_); };
    parts_.pre_tokenizer.run(piece, PieceSink(encode_word));
  }

  const TokenizerParts& parts_;
  EncodeScratch& scratch_;
  std::vector<int32_t>& out_;
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  static const PostProcessor nothing;
  const PostProcessor& around = add_special_tokens ? parts_->post_processor : nothing;
  std::vector<int32_t> ids(around.prefix);
  auto scratch = parts_->scratches.take();
  Encoder(*parts_, *scratch, ids).run(text);
  parts_->scratches.put(std::move(scratch));
  ids.insert(ids.end(), around.suffix.begin(), around.suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  DecodeRun run = parts_->decoder.start();
  std::string text;
  for (const int32_t id : ids) {
    if (skip_special && is_special(id)) continue;
    if (const auto token = parts_->token(id)) run.push(*token, text);
  }
  run.finish(text);
  return text;
}

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  return parts_->id_of(token);
}
std::optional<std::string_view> Tokenizer::token(int32_t id) const {
  return parts_->token(id);
}

bool Tokenizer::is_special(int32_t id) const {
  const AddedToken* token = parts_->added.find(id);
  return token && token->special;
}

int32_t Tokenizer::end_id() const {
  return std::max(parts_->model->vocabulary().end_id(), parts_->added.end_id());
}

int64_t Tokenizer::token_count() const {
  const Vocabulary& vocabulary = parts_->model->vocabulary();
  return int64_t(vocabulary.size() + parts_->added.count_outside(vocabulary));
}

std::optional<int32_t> Tokenizer::bos_id() const {
  return parts_->bos_id;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return parts_->eos_id;
}
const std::map<std::string, std::string>& Tokenizer::special_tokens() const {
  return parts_->config.special_tokens;
}

bool Tokenizer::adds_bos() const {
  const auto& prefix = parts_->post_processor.prefix;
  return parts_->bos_id && std::find(prefix.begin(), prefix.end(), *parts_->bos_id) != prefix.end();
}

}  // namespace medley
