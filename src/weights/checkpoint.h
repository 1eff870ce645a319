// A checkpoint's tensors by name, from model.safetensors, from the shards that model.safetensors.index.json lists, or
// from GGUF files.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace medley {

// A tensor that no file holds as it is wanted: a WeightLoader makes it from others when it is taken.
struct ConvertedTensor {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::function<void(std::byte* out)> fill;  // writes the whole tensor, contiguous; the files are mapped meanwhile
};

class Checkpoint {
 public:
  // `folder` holds model.safetensors or model.safetensors.index.json with its shards. Throws Error when neither is
  // there, a shard is missing, or index and shards disagree about where a tensor is.
  explicit Checkpoint(const std::filesystem::path& folder);

  // The tensors of GGUF files under the names that `rename` gives them; an empty name leaves a tensor out. Throws Error
  // when two get the same name.
  Checkpoint(std::vector<GgufFile> files, const std::function<std::string(const std::string&)>& rename);

  struct Entry {
    StoredTensor tensor;        // `view` has no memory before a conversion
    const MappedFile* file;     // that holds it, or most of what it is made from
    ConvertedTensor converted;  // `fill` is empty: the view is into the file
  };
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const Entry* find(const std::string& name) const;
  // GGUF files only. Throws Error when the name is there already.
  void add(const std::string& name, const StoredTensor& tensor, const MappedFile& file);
  void add(const std::string& name, ConvertedTensor tensor, const MappedFile& file);
  const std::vector<GgufFile>& gguf_files() const { return gguf_files_; }

  // These bytes of a mapped file were copied elsewhere: their pages may go.
  void release(std::span<const std::byte> range) const;
  // Throws Error if a file was cut short since it was opened.
  void check_intact() const;
  uint64_t total_bytes() const { return total_bytes_; }
  std::string describe() const;  // "FOLDER (3 files)"

 private:
  void add(const std::string& name, Entry entry);
  void add(const SafetensorsFile& file);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<GgufFile> gguf_files_;
  std::map<std::string, Entry> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace medley
