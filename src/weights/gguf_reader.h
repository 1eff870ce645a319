// Reads a GGUF header from front to back; every step is checked against the bytes that are left.
#pragma once

#include <cstring>

#include "weights/gguf.h"

namespace medley {

// A name from a file as it may stand in a message: control and other bytes replaced, cut when long.
std::string printable(std::string_view name);

class GgufReader {
 public:
  // `where` outlives it.
  GgufReader(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  uint64_t position() const { return at_; }

  template <class T>
  T scalar(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view string(std::string_view what);
  // A number of things that take at least `least` bytes each: no more than the rest of the file can hold.
  uint64_t count(std::string_view things, uint64_t least);
  // A value's type, then the value; `key` names it in messages.
  GgufValue value(const std::string& key);

 private:
  static constexpr int max_nesting = 4;  // arrays in arrays

  friend class GgufValue;
  std::span<const std::byte> take(uint64_t size, std::string_view what);
  GgufType type(const std::string& key);
  GgufValue value_of(GgufType type, const std::string& key, int nesting);

  std::span<const std::byte> bytes_;
  const std::string& where_;
  uint64_t at_ = 0;
};

}  // namespace medley
