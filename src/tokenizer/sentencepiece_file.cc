#include "tokenizer/sentencepiece_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

// The wire format of protocol buffers: (field number, type) and a value, again and again. Views into the data.
class Message {
 public:
  Message(std::string_view data, size_t base, const std::string& where) : data_(data), base_(base), where_(where) {}

  struct Field {
    uint64_t number = 0;
    uint64_t wire = 0;
    uint64_t value = 0;      // of a varint, fixed32 or fixed64
    std::string_view bytes;  // of a length-delimited field
    size_t at = 0;           // of the bytes in the file
  };

  std::optional<Field> next() {
    if (at_ == data_.size()) return std::nullopt;
    Field field;
    const uint64_t key = varint();
    field.number = key >> 3;
    field.wire = key & 7;
    if (field.wire == 0) {
      field.value = varint();
    } else if (field.wire == 1 || field.wire == 5) {
      const std::string_view bytes = take(field.wire == 1 ? 8 : 4);
      std::memcpy(&field.value, bytes.data(), bytes.size());  // little-endian, as every machine medley runs on
    } else if (field.wire == 2) {
      const uint64_t size = varint();
      field.at = base_ + at_;
      field.bytes = take(size);
    } else {
      refuse(fmt::format("has a field of type {}, which no tokenizer.model has", field.wire));
    }
    return field;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    fail("{}: byte {}: {}; is this a sentencepiece model?", where_, base_ + at_, why);
  }
  Message inside(const Field& field) const {
    if (field.wire != 2) refuse(fmt::format("field {} is no message", field.number));
    return {field.bytes, field.at, where_};
  }
  float float_of(const Field& field) const {
    if (field.wire != 5) refuse(fmt::format("field {} is no float", field.number));
    return std::bit_cast<float>(uint32_t(field.value));
  }
  std::string text_of(const Field& field) const {
    if (field.wire != 2) refuse(fmt::format("field {} is no text", field.number));
    return std::string(field.bytes);
  }
  int32_t integer_of(const Field& field) const {
    if (field.wire != 0) refuse(fmt::format("field {} is no integer", field.number));
    return int32_t(field.value);
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse("a number of more than 64 bits");
  }
  std::string_view take(uint64_t size) {
    if (size > data_.size() - at_) refuse(fmt::format("{} bytes are wanted and {} are left", size, data_.size() - at_));
    at_ += size;
    return data_.substr(at_ - size, size);
  }

  std::string_view data_;
  size_t base_ = 0, at_ = 0;
  const std::string& where_;
};

void read_piece(Message message, const std::string& where, SentencePieces& model) {
  SentencePieces::Piece piece;
  while (const auto field = message.next()) {
    if (field->number == 1) piece.text = message.text_of(*field);
    if (field->number == 2) piece.score = message.float_of(*field);
    if (field->number == 3) {
      const int32_t type = message.integer_of(*field);
      if (type < SentencePieces::normal || type > SentencePieces::byte)
        fail("{}: piece {} has the type {}, known are 1 to 6", where, model.pieces.size(), type);
      piece.type = SentencePieces::Type(type);
    }
  }
  if (piece.text.empty() || !unicode::is_valid(piece.text))
    fail("{}: piece {} is {}", where, model.pieces.size(), piece.text.empty() ? "empty" : "not UTF-8");
  if (!(std::abs(piece.score) < 1e30f))
    fail("{}: piece {} (\"{}\") has the score {}", where, model.pieces.size(), piece.text, piece.score);
  model.pieces.push_back(std::move(piece));
}

void read_trainer(Message message, const std::string& where, SentencePieces& model) {
  while (const auto field = message.next()) {
    switch (field->number) {
      case 3: {
        const int32_t type = message.integer_of(*field);
        if (type != 1 && type != 2) fail("{}: model_type is {}; supported are 1 (Unigram) and 2 (BPE)", where, type);
        model.model = SentencePieces::Model(type);
        break;
      }
      case 24: model.whitespace_as_suffix = message.integer_of(*field) != 0; break;
      case 35: model.byte_fallback = message.integer_of(*field) != 0; break;
      case 41: model.bos_id = message.integer_of(*field); break;
      case 42: model.eos_id = message.integer_of(*field); break;
      case 43: model.pad_id = message.integer_of(*field); break;
      default: break;  // how it was trained
    }
  }
}

void read_normalizer(Message message, SentencePieces& model) {
  while (const auto field = message.next()) {
    switch (field->number) {
      case 2: model.charsmap = message.text_of(*field); break;
      case 3: model.add_dummy_prefix = message.integer_of(*field) != 0; break;
      case 4: model.remove_extra_whitespaces = message.integer_of(*field) != 0; break;
      case 5: model.escape_whitespaces = message.integer_of(*field) != 0; break;
      default: break;  // its name and source
    }
  }
}

void check(const SentencePieces& model, const std::string& where) {
  if (model.pieces.empty()) fail("{}: there are no pieces; is this a sentencepiece model?", where);
  if (model.pieces.size() > 1 << 24) fail("{}: {} pieces are more than a vocabulary has", where, model.pieces.size());
  const auto unknown = [](const SentencePieces::Piece& piece) { return piece.type == SentencePieces::unknown; };
  if (std::count_if(model.pieces.begin(), model.pieces.end(), unknown) != 1)
    fail("{}: exactly one piece must be of type 2 (unknown)", where);
  for (const int32_t id : {model.bos_id, model.eos_id, model.pad_id})
    if (id >= int32_t(model.pieces.size())) fail("{}: id {} of BOS, EOS or padding is no piece's", where, id);
  if (model.whitespace_as_suffix) fail("{}: treat_whitespace_as_suffix is not supported", where);
  if (!model.escape_whitespaces) fail("{}: escape_whitespaces false is not supported", where);
}

}  // namespace

int32_t SentencePieces::unk_id() const {
  const auto unk = std::find_if(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.type == unknown; });
  return unk == pieces.end() ? -1 : int32_t(unk - pieces.begin());
}

SentencePieces parse_sentencepieces(std::string_view data, const std::string& where) {
  SentencePieces model;
  Message message(data, 0, where);
  while (const auto field = message.next()) {
    switch (field->number) {
      case 1: read_piece(message.inside(*field), where, model); break;
      case 2: read_trainer(message.inside(*field), where, model); break;
      case 3: read_normalizer(message.inside(*field), model); break;
      default: break;  // self-test data, the denormalizer
    }
  }
  check(model, where);
  return model;
}

SentencePieces read_sentencepieces(const std::filesystem::path& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  return parse_sentencepieces({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace medley
