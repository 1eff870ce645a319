#include "tokenizer/stream_decoder.h"

#include "tokenizer/tokenizer_parts.h"

namespace medley {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer),
      skip_special_(skip_special),
      run_(std::make_unique<DecodeRun>(tokenizer.parts_->decoder.start())) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(int32_t id) {
  std::string piece;
  if (skip_special_ && tokenizer_.is_special(id)) return piece;
  if (const auto token = tokenizer_.token(id)) run_->push(*token, piece);
  return piece;
}

std::string StreamDecoder::finish() {
  std::string piece;
  run_->finish(piece);
  return piece;
}

}  // namespace medley
