// The steps of decoders. Names ending in Each work on every token, in Text on one text that comes in parts.
#pragma once

#include <string>

#include "tokenizer/decoder.h"
#include "tokenizer/regex.h"

namespace medley::decode {

class JoinWithSpaces final : public DecodeStage {
 public:
  void push(std::string_view token, const TextSink& out) override;

 private:
  bool first_ = true;
};

// Characters of the byte alphabet become bytes; bytes that cannot be UTF-8 become U+FFFD. Fuses.
class ByteLevel final : public DecodeStage {
 public:
  void push(std::string_view token, const TextSink& out) override;
  void finish(const TextSink& out) override;

 private:
  std::string held_;  // an unfinished character
};

// <0xE4> <0xBD> <0xA0> becomes the character, a run that is not UTF-8 one U+FFFD a byte. Only the end of the run shows
// which, so the whole run is held.
class ByteFallback final : public DecodeStage {
 public:
  void push(std::string_view token, const TextSink& out) override;
  void finish(const TextSink& out) override;

 private:
  std::string run_;
};

// The same pieces as sentencepiece has them: characters as soon as they are whole, and U+FFFD for each byte that is
// part of none.
class BytePieces final : public DecodeStage {
 public:
  void push(std::string_view token, const TextSink& out) override;
  void finish(const TextSink& out) override { flush(true, out); }

 private:
  void flush(bool at_end, const TextSink& out);
  std::string held_;
};

class ReplaceEach final : public DecodeStage {
 public:
  ReplaceEach(Regex pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void push(std::string_view token, const TextSink& out) override;

 private:
  Regex pattern_;
  std::string content_;
};

class ReplaceText final : public DecodeStage {
 public:
  ReplaceText(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  void push(std::string_view part, const TextSink& out) override;
  void finish(const TextSink& out) override;

 private:
  std::string from_, to_;
  std::string held_;  // a beginning of from_
};

// A regex may match any amount of text: nothing is sure before the end.
class ReplaceAtEnd final : public DecodeStage {
 public:
  ReplaceAtEnd(Regex pattern, std::string content) : each_(std::move(pattern), std::move(content)) {}
  void push(std::string_view part, const TextSink&) override { text_ += part; }
  void finish(const TextSink& out) override { each_.push(text_, out); }

 private:
  ReplaceEach each_;
  std::string text_;
};

// Up to `start` of the character from the front and `stop` from the back.
class StripEach final : public DecodeStage {
 public:
  StripEach(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  void push(std::string_view token, const TextSink& out) override;

 private:
  std::string character_;
  size_t start_, stop_;
};

class StripText final : public DecodeStage {
 public:
  StripText(std::string character, size_t start, size_t stop)
      : character_(std::move(character)), start_(start), stop_(stop) {}
  void push(std::string_view part, const TextSink& out) override;
  void finish(const TextSink& out) override;

 private:
  std::string character_;
  size_t start_;  // left to strip from the front; 0 once another character came
  size_t stop_;
  size_t held_ = 0;  // of the character, at the end so far
};

class Metaspace final : public DecodeStage {
 public:
  Metaspace(std::string replacement, bool drop_first) : replacement_(std::move(replacement)), drop_(drop_first) {}
  void push(std::string_view token, const TextSink& out) override;

 private:
  std::string replacement_;
  bool drop_;  // in the first token the character stands for no space
};

}  // namespace medley::decode
