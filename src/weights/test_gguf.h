// Builds GGUF files for tests, right or wrong ones.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf.h"

namespace medley::test {

class GgufBytes {
 public:
  explicit GgufBytes(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    raw("GGUF").put(version).put(tensors).put(keys);
  }
  template <class T>
  GgufBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  GgufBytes& raw(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  GgufBytes& text(std::string_view text) { return put(uint64_t(text.size())).raw(text); }
  GgufBytes& key(std::string_view name, GgufType type) { return text(name).put(uint32_t(type)); }
  template <class T>
  GgufBytes& key(std::string_view name, GgufType type, T value) {
    return key(name, type).put(value);
  }
  GgufBytes& array(GgufType type, uint64_t count) { return put(uint32_t(type)).put(count); }
  // Dimensions in the file's order, fastest first.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).put(uint32_t(dims.size()));
    for (uint64_t dim : dims) put(dim);
    return put(type).put(offset);
  }
  GgufBytes& pad(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  const std::string& str() const { return bytes_; }
  GgufContents parse() const { return parse_gguf(std::as_bytes(std::span(bytes_)), "m.gguf"); }

 private:
  std::string bytes_;
};

}  // namespace medley::test
