// The second stage of encoding: text to words, the pieces that merges never cross (tokenizer.json's "pre_tokenizer").
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

struct Piece {
  std::string_view text;
  bool at_start = false;         // begins where the whole input begins: Metaspace's scheme "first" asks
  bool needs_stand_ins = false;  // has characters newer than PCRE2 (unicode_versions.h)
};

// Pieces are passed by reference: a copy that reads at once what was written in parts waits for the store buffer, which
// took a third of the time of a text of one-letter words.

// Where pieces go: a callable that outlives the call it is passed to.
class PieceSink {
 public:
  template <class Callable>
  explicit PieceSink(const Callable& callable)
      : object_(&callable),
        call_([](const void* object, const Piece& piece) { (*static_cast<const Callable*>(object))(piece); }) {}
  void operator()(const Piece& piece) const { call_(object_, piece); }

 private:
  const void* object_;
  void (*call_)(const void*, const Piece&);
};

// One step: cuts a piece, perhaps rewriting it. What it emits lives until the sink returns.
class PieceStage {
 public:
  virtual ~PieceStage() = default;
  virtual void run(const Piece& piece, const PieceSink& sink) const = 0;
};

class PreTokenizer {
 public:
  // null gives one piece, the text. `bytes_stay_bytes`: a final ByteLevel cuts, but leaves its words as raw bytes, for
  // a model keyed by bytes; otherwise it spells them in the byte alphabet.
  static PreTokenizer make(const nlohmann::json& json, const std::string& where, bool bytes_stay_bytes);
  // Whether the last stage is ByteLevel, so that a model may be keyed by bytes.
  static bool ends_in_byte_level(const nlohmann::json& json);

  void run(const Piece& piece, const PieceSink& sink) const;  // empty pieces are dropped
  bool empty() const { return stages_.empty(); }

 private:
  std::vector<std::unique_ptr<PieceStage>> stages_;
};

}  // namespace medley
