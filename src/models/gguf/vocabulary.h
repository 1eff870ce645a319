// The keys tokenizer.* of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tokenizer/gguf_vocabulary.h"
#include "weights/gguf.h"

namespace medley {

// Nothing when the file has no tokens. Strings are views into the file.
std::optional<GgufVocabulary> read_gguf_vocabulary(const GgufFile& file);

// The tokens that end a text or a turn: what the file calls end of text, of turn or of message, and control tokens that
// are known to mean it under names that files often leave out.
std::vector<int32_t> read_gguf_end_tokens(const GgufFile& file);

}  // namespace medley
