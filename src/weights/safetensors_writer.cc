#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "weights/safetensors.h"

namespace medley {
namespace {

const char* file_name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::u8: return "U8";
    default: fail("safetensors has no dtype for {}", name_of(dtype));
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::map<std::string, TensorView>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  size_t offset = 0;
  for (const auto& [name, view] : tensors) {
    MEDLEY_CHECK(view.contiguous());
    header[name] = {{"dtype", file_name_of(view.dtype)},
                    {"shape", std::vector<int64_t>(view.shape.begin(), view.shape.begin() + view.rank)},
                    {"data_offsets", {offset, offset + view.bytes()}}};
    offset += view.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data starts aligned
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out.write(text.data(), std::streamsize(text.size()));
  for (const auto& [name, view] : tensors)
    out.write(static_cast<const char*>(view.data), std::streamsize(view.bytes()));
  out.close();
  if (!out) fail("{}: cannot be written", path.string());
}

}  // namespace medley
