// A GGUF file, mapped: metadata by key, tensors by name, versions 2 and 3 (ggml's docs/gguf.md).
//
//   "GGUF", u32 version, u64 tensors, u64 keys; the keys, each with its type and value; the tensors' names, dimensions,
//   types and offsets; padding to the alignment; the tensors' bytes.
//
// Nothing of the file is trusted: counts are compared with the bytes that are left before anything is allocated, and
// all strings, arrays and tensor ranges are walked once when the file is opened. Values stay in the mapping.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "weights/stored_tensor.h"

namespace medley {

// In the order of the file's numbers.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view name_of(GgufType type);

// A metadata value: a view into the file. Asking for what it is not throws Error naming file, key and type.
class GgufValue {
 public:
  GgufType type() const { return type_; }
  GgufType element_type() const { return element_type_; }  // of an array
  uint64_t size() const { return count_; }                 // elements of an array, else 1

  int64_t integer() const;  // of any integer type
  double number() const;    // of any integer or float type
  bool boolean() const;
  std::string_view string() const;
  std::vector<int64_t> integers() const;  // an array of integers or booleans
  std::vector<double> numbers() const;    // an array of integers or floats
  std::vector<std::string_view> strings() const;
  std::vector<GgufValue> arrays() const;

 private:
  friend class GgufReader;
  [[noreturn]] void refuse(std::string_view wanted) const;

  std::string where_;  // "FILE: key KEY"
  GgufType type_ = GgufType::u8, element_type_ = GgufType::u8;
  uint64_t count_ = 1;
  std::span<const std::byte> bytes_;  // the value; of a string or array behind its length
};

struct GgufContents {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, StoredTensor> tensors;
};

// Parses a whole file in memory; `where` (its name) opens every message of the Errors thrown. Views point into `bytes`.
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& where);

class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return contents_.metadata; }
  const GgufValue* find(std::string_view key) const;   // null: not there
  const GgufValue& value(std::string_view key) const;  // throws Error naming file and key
  const std::map<std::string, StoredTensor>& tensors() const { return contents_.tensors; }
  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  GgufContents contents_;
};

// The file, or all files of a model that is split (NAME-00001-of-0000N.gguf, any of them given): metadata is read from
// the first. Throws Error when one is missing or does not belong to the others.
std::vector<GgufFile> open_gguf(const std::filesystem::path& path);

}  // namespace medley
