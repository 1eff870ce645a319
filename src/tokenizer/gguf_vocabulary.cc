#include "tokenizer/gguf_vocabulary.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/gguf_words.h"
#include "tokenizer/scored_merges.h"
#include "tokenizer/tokenizer_parts.h"

namespace medley {
namespace {

constexpr const char* metaspace = "\xe2\x96\x81";  // U+2581

// Of a token that is there twice the first counts.
Vocabulary all_tokens(const GgufVocabulary& from) {
  Vocabulary vocabulary;
  for (size_t id = 0; id < from.tokens.size(); ++id)
    if (!vocabulary.find(from.tokens[id])) vocabulary.add(from.tokens[id], int64_t(id), from.where);
  return vocabulary;
}

MergeTable written_merges(const GgufVocabulary& from, const Vocabulary& vocabulary) {
  MergeTable merges(from.merges.size());
  for (size_t i = 0; i < from.merges.size(); ++i) {
    const std::string_view merge = from.merges[i];
    const size_t space = merge.find(' ', 1);  // a token may be a space
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = space == std::string_view::npos ? "" : merge.substr(space + 1);
    const auto l = vocabulary.find(left), r = vocabulary.find(right);
    const auto merged = vocabulary.find(std::string(left) + std::string(right));
    if (!l || !r || !merged)
      fail("{}: tokenizer.ggml.merges {} is \"{}\", not two tokens that make a third", from.where, i, merge);
    merges.set(*l, *r, {uint32_t(i), *merged});
  }
  return merges;
}

// Tokens with a meaning of their own are cut out of the text before it is merged.
void add_tokens(const GgufVocabulary& from, TokenizerParts& parts) {
  for (size_t id = 0; id < from.types.size(); ++id) {
    const GgufTokenType type = from.types[id];
    const bool special = type == GgufTokenType::control || type == GgufTokenType::unknown;
    if (!special && type != GgufTokenType::user_defined) continue;
    if (from.tokens[id].empty() || parts.model->vocabulary().find(from.tokens[id]) != int32_t(id)) continue;
    parts.added.add({.content = std::string(from.tokens[id]), .id = int32_t(id), .special = special});
  }
  parts.added.prepare(parts.normalizer.get());
}

void add_roles(const GgufVocabulary& from, bool adds_bos, TokenizerParts& parts) {
  const auto role = [&](const char* name, std::optional<int32_t> id) {
    if (!id) return;
    if (*id < 0 || size_t(*id) >= from.tokens.size())
      fail("{}: the {} has the id {}, but there are {} tokens", from.where, name, *id, from.tokens.size());
    parts.config.special_tokens.emplace(name, from.tokens[size_t(*id)]);
  };
  role("bos_token", from.bos);
  role("eos_token", from.eos);
  role("unk_token", from.unknown);
  role("pad_token", from.padding);
  parts.bos_id = from.bos;
  parts.eos_id = from.eos;
  if (from.add_bos.value_or(adds_bos) && from.bos) parts.post_processor.prefix = {*from.bos};
  if (from.add_eos.value_or(false) && from.eos) parts.post_processor.suffix = {*from.eos};
}

// Byte-level BPE (GPT-2 and most that came after).
void make_byte_level(const GgufVocabulary& from, TokenizerParts& parts) {
  GgufWords words;
  const nlohmann::json pre_tokenizer = gguf_pre_tokenizer(from.pre, from.where, words);
  Vocabulary vocabulary = all_tokens(from);
  MergeTable merges = written_merges(from, vocabulary);
  auto model = std::make_unique<BpeModel>(
      BpeTables{std::move(vocabulary), std::move(merges), words.ignore_merges, false, std::nullopt}, true);
  parts.pre_tokenizer = PreTokenizer::make(pre_tokenizer, from.where, model->byte_words());
  parts.model = std::move(model);
  parts.decoder = Decoder::make({{"type", "ByteLevel"}}, from.where);
  add_roles(from, words.adds_bos, parts);
}

// Sentencepiece's BPE (Llama 2, Mistral, Gemma): spaces are a character of their own, unknown characters their bytes.
void make_sentencepiece(const GgufVocabulary& from, TokenizerParts& parts) {
  if (from.scores.size() != from.tokens.size())
    fail("{}: tokenizer.ggml.scores has {} numbers for {} tokens", from.where, from.scores.size(), from.tokens.size());
  const bool prefix = from.add_space_prefix.value_or(true);
  nlohmann::json spaces{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", metaspace}};
  nlohmann::json normalizer = spaces;
  if (prefix)
    normalizer = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", metaspace}}, spaces}}};
  nlohmann::json decoders = {{{"type", "Replace"}, {"pattern", {{"String", metaspace}}}, {"content", " "}},
                             {{"type", "ByteFallback"}},
                             {{"type", "Fuse"}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Vocabulary vocabulary = all_tokens(from);
  MergeTable merges = scored_merges(vocabulary, from.scores, [](int32_t) { return true; });
  parts.model =
      std::make_unique<BpeModel>(BpeTables{std::move(vocabulary), std::move(merges), false, true, from.unknown}, false);
  parts.normalizer = make_normalizer(normalizer, from.where);
  parts.decoder = Decoder::make({{"type", "Sequence"}, {"decoders", decoders}}, from.where);
  add_roles(from, true, parts);
}

}  // namespace

Tokenizer make_gguf_tokenizer(const GgufVocabulary& from) {
  if (!from.types.empty() && from.types.size() != from.tokens.size())
    fail("{}: tokenizer.ggml.token_type has {} numbers for {} tokens", from.where, from.types.size(),
         from.tokens.size());
  auto parts = std::make_shared<TokenizerParts>();
  if (from.model == "gpt2") {
    make_byte_level(from, *parts);
  } else if (from.model == "llama") {
    make_sentencepiece(from, *parts);
  } else {
    fail(
        "{}: tokenizer.ggml.model \"{}\" is not supported; medley supports gpt2 (byte-level BPE) and llama "
        "(sentencepiece's BPE). Token ids work without.",
        from.where, from.model);
  }
  add_tokens(from, *parts);
  return Tokenizer(std::move(parts));
}

}  // namespace medley
