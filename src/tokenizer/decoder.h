// Tokens back to text (tokenizer.json's "decoder"), one token at a time. Decoding a whole list is the same run pushed
// to its end, so what a stream shows always adds up to the whole.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

using TextSink = std::function<void(std::string_view)>;

// One step with its state. It takes tokens; after a step that fuses (ByteLevel, Fuse), the parts of one long token.
// It passes on what no later input can change, always whole characters.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(std::string_view text, const TextSink& out) = 0;
  virtual void finish(const TextSink&) {}
};

// The state of one decoding.
class DecodeRun {
 public:
  explicit DecodeRun(std::vector<std::unique_ptr<DecodeStage>> stages) : stages_(std::move(stages)) {}
  void push(std::string_view token, std::string& out) { push_from(0, token, out); }
  void finish(std::string& out);

 private:
  void push_from(size_t stage, std::string_view text, std::string& out);
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

class Decoder {
 public:
  // null joins tokens with spaces. Throws Error naming `where` for a decoder that is not supported.
  static Decoder make(const nlohmann::json& json, const std::string& where);
  // Of a tokenizer.model: metaspaces as spaces, byte pieces as the characters they make, and up to `leading_spaces`
  // dropped from the front.
  static Decoder sentencepiece(size_t leading_spaces);
  DecodeRun start() const;

 private:
  std::vector<std::function<std::unique_ptr<DecodeStage>()>> stages_;
};

}  // namespace medley
