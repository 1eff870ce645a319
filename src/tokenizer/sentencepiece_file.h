// tokenizer.model: what sentencepiece's trainer wrote, a protobuf message (sentencepiece_model.proto) of pieces with
// scores and the settings that encoding needs. A dozen fields of a format that is frozen: read here, not through the
// sentencepiece library, which ends the process on files it dislikes and keeps its own copy of what BPE and Unigram do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace medley {

struct SentencePieces {
  enum Type : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = normal;
  };
  std::vector<Piece> pieces;  // [id]

  enum class Model : uint8_t { unigram = 1, bpe = 2 } model = Model::unigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int32_t bos_id = 1, eos_id = 2, pad_id = -1;  // negative: none

  std::string charsmap;  // Charsmap's data, empty: text stays as it is
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  int32_t unk_id() const;  // the one piece of this type
};

// Throws Error naming `where`, and the byte at which the data stops to make sense, for what is broken or not supported.
SentencePieces parse_sentencepieces(std::string_view data, const std::string& where);
SentencePieces read_sentencepieces(const std::filesystem::path& path);

}  // namespace medley
