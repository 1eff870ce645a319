// Text of tokens as they come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace medley {

// Each piece is valid UTF-8, and the pieces with finish() are exactly Tokenizer::decode of all the ids. What a later
// token may still change is held back: the bytes of an unfinished character, and for vocabularies with byte fallback a
// run of byte tokens (they show together or not at all).
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  std::string push(int32_t id);
  std::string finish();  // what was held back; call once

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  std::unique_ptr<DecodeRun> run_;
};

}  // namespace medley
