// A safetensors file, mapped: 8 bytes of little-endian header length, a JSON header naming each tensor's dtype, shape
// and byte range, then the bytes. (Format: github.com/huggingface/safetensors.)
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/mapped_file.h"
#include "weights/stored_tensor.h"

namespace medley {

class SafetensorsFile {
 public:
  // Throws Error naming the file and tensor when the header is not exact: ranges that overlap, leave gaps, pass the
  // end or disagree with shape and dtype; a header that is too long or not JSON.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

// Writes named tensors (f32, bf16, f16, i32, i64; contiguous) as a safetensors file.
void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors);

}  // namespace medley
