#include "weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace medley {
namespace {

static_assert(std::endian::native == std::endian::little, "weights are mapped, little-endian, as stored");

struct FileDType {
  const char* name;
  int64_t bits;
  std::optional<DType> dtype;
};

constexpr FileDType known_dtypes[] = {
    {"F32", 32, DType::f32}, {"BF16", 16, DType::bf16}, {"F16", 16, DType::f16}, {"I32", 32, DType::i32},
    {"I64", 64, DType::i64}, {"U8", 8, DType::u8},      {"F64", 64, {}},         {"I16", 16, {}},
    {"I8", 8, {}},           {"U16", 16, {}},           {"U32", 32, {}},         {"U64", 64, {}},
    {"BOOL", 8, {}},         {"F8_E4M3", 8, {}},        {"F8_E5M2", 8, {}},      {"F8_E8M0", 8, {}},
    {"F4", 4, {}},           {"F6_E2M3", 6, {}},        {"F6_E3M2", 6, {}},
};

// A non-negative integer below 2^62, so that sums and small products cannot overflow unnoticed.
int64_t count_of(const nlohmann::json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= (uint64_t(1) << 62))
    fail("{}: {} is not a size", where, value.dump());
  return value.get<int64_t>();
}

struct Range {
  int64_t begin, end;
  std::string name;
};

StoredTensor parse_tensor(const std::string& where, const nlohmann::json& entry, std::span<const std::byte> data,
                          Range& range) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
    fail("{}: needs dtype, shape and data_offsets", where);
  const auto& dtype = entry["dtype"];
  const auto* known = std::find_if(std::begin(known_dtypes), std::end(known_dtypes), [&](const FileDType& candidate) {
    return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.name;
  });
  if (known == std::end(known_dtypes)) fail("{}: unknown dtype {}", where, dtype.dump());

  const auto& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2)
    fail("{}: data_offsets is {}, want two numbers", where, offsets.dump());
  range.begin = count_of(offsets[0], where);
  range.end = count_of(offsets[1], where);
  if (range.begin > range.end || range.end > int64_t(data.size()))
    fail("{}: bytes [{}, {}) lie outside the file's {} bytes of data", where, range.begin, range.end, data.size());

  const auto& shape = entry["shape"];
  if (!shape.is_array()) fail("{}: shape is {}, want a list", where, shape.dump());
  std::vector<int64_t> dims;
  constexpr int64_t limit = int64_t(1) << 56;  // elements, so that their bits fit an int64
  int64_t elements = 1;
  for (const auto& dim : shape) {
    dims.push_back(count_of(dim, where));
    if (dims.back() > 0 && elements > limit / dims.back())
      fail("{}: shape {} is larger than any file", where, shape.dump());
    elements *= dims.back();
  }
  if (elements * known->bits != (range.end - range.begin) * 8)
    fail("{}: shape {} of {} does not fill its {} bytes", where, shape.dump(), known->name, range.end - range.begin);

  StoredTensor tensor;
  tensor.dtype_name = known->name;
  tensor.bytes = data.subspan(size_t(range.begin), size_t(range.end - range.begin));
  tensor.readable = known->dtype.has_value() && dims.size() <= size_t(max_rank);
  if (tensor.readable) {
    if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % size_of(*known->dtype) != 0)
      fail(
          "{}: data begins at an address that {} cannot be read from (offset {}); save the file again with a current "
          "safetensors",
          where, known->name, range.begin);
    tensor.view =
        TensorView(const_cast<std::byte*>(tensor.bytes.data()), *known->dtype, std::span<const int64_t>(dims));
  }
  return tensor;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::span<const std::byte> bytes = file_.bytes();
  constexpr uint64_t longest_header = 100'000'000;  // the format's own limit
  uint64_t length = 0;
  if (bytes.size() < 8) fail("{}: {} bytes are too few for a safetensors file", file_.path(), bytes.size());
  std::memcpy(&length, bytes.data(), 8);
  if (length > longest_header || length > bytes.size() - 8)
    fail("{}: header of {} bytes does not fit the file of {} bytes: truncated, or not a safetensors file", file_.path(),
         length, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, size_t(length));
  const nlohmann::json header = parse_json(text, file_.path() + " (header)");
  if (!header.is_object()) fail("{}: the header is not a JSON object", file_.path());

  const std::span<const std::byte> data = bytes.subspan(8 + size_t(length));
  std::vector<Range> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Range range{0, 0, name};
    tensors_.emplace(name, parse_tensor(fmt::format("{}: tensor {}", file_.path(), name), entry, data, range));
    ranges.push_back(range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  int64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin < at) fail("{}: tensor {} overlaps the one before it", file_.path(), range.name);
    if (range.begin > at)
      fail("{}: {} bytes before tensor {} belong to no tensor", file_.path(), range.begin - at, range.name);
    at = range.end;
  }
  if (at != int64_t(data.size()))
    fail("{}: {} bytes at the end belong to no tensor", file_.path(), int64_t(data.size()) - at);
}

}  // namespace medley
