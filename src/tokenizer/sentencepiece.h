// tokenizer.model to the stages of a Tokenizer.
#pragma once

#include <string>

namespace medley {

struct SentencePieces;
struct TokenizerParts;

// Fills the model, normalizer, decoder and added tokens of `parts` (whose config is read already). Control pieces (<s>)
// written in the text are recognised, as in transformers; sentencepiece itself reads them as text.
void take_sentencepieces(const SentencePieces& pieces, const std::string& where, TokenizerParts& parts);

}  // namespace medley
