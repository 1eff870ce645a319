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

class Checkpoint {
 public:
  // `folder` holds model.safetensors or model.safetensors.index.json with its shards. Throws Error when neither is
  // there, a shard is missing, or index and shards disagree about where a tensor is.
  explicit Checkpoint(const std::filesystem::path& folder);

  // The tensors of GGUF files under the names that `rename` gives them; an empty name leaves a tensor out. Throws Error
  // when two get the same name.
  Checkpoint(std::vector<GgufFile> files, const std::function<std::string(const std::string&)>& rename);

  struct Entry {
    const StoredTensor* tensor;
    const MappedFile* file;
  };
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  const Entry* find(const std::string& name) const;
  // These bytes of a mapped file were copied elsewhere: their pages may go.
  void release(std::span<const std::byte> range) const;
  uint64_t total_bytes() const { return total_bytes_; }
  std::string describe() const;  // "FOLDER (3 files)"

 private:
  void add(const std::string& name, const StoredTensor& tensor, const MappedFile& file);
  void add(const SafetensorsFile& file);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::vector<GgufFile> gguf_files_;
  std::map<std::string, Entry> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace medley
