#include "weights/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "weights/gguf_reader.h"
#include "weights/gguf_types.h"

namespace medley {
namespace {

static_assert(std::endian::native == std::endian::little, "weights are mapped, little-endian, as stored");

struct Range {
  uint64_t begin, end;
  std::string name;
};

// A tensor's type and extent, and where in the data its bytes lie; the data's address comes later.
struct TensorEntry {
  std::string name, where;
  std::vector<int64_t> dims;  // row-major
  uint32_t type = 0;
  uint64_t offset = 0;
};

TensorEntry read_tensor_entry(GgufReader& reader, const std::string& file) {
  TensorEntry entry;
  entry.name = reader.string("a tensor's name");
  entry.where = fmt::format("{}: tensor {}", file, printable(entry.name));
  const auto rank = reader.scalar<uint32_t>(entry.where);
  if (rank < 1 || rank > uint32_t(max_rank))
    fail("{}: has {} dimensions; medley reads 1 to {}", entry.where, rank, max_rank);
  constexpr uint64_t limit = uint64_t(1) << 56;  // elements, so that bytes fit an int64
  uint64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) {
    const auto dim = reader.scalar<uint64_t>(entry.where);
    if (dim > limit || (dim > 0 && elements > limit / dim)) fail("{}: its shape is larger than any file", entry.where);
    elements *= dim;
    entry.dims.push_back(int64_t(dim));
  }
  std::reverse(entry.dims.begin(), entry.dims.end());  // the file names the fastest dimension first
  entry.type = reader.scalar<uint32_t>(entry.where);
  entry.offset = reader.scalar<uint64_t>(entry.where);
  return entry;
}

StoredTensor place(const TensorEntry& entry, std::span<const std::byte> data, uint64_t alignment, Range& range) {
  if (entry.offset % alignment != 0)
    fail("{}: begins at offset {}, not a multiple of the file's alignment {}", entry.where, entry.offset, alignment);
  StoredTensor tensor;
  const GgufTensorType* type = find_gguf_tensor_type(entry.type);
  tensor.dtype_name = type != nullptr ? std::string(type->name) : fmt::format("of the unknown type {}", entry.type);
  uint64_t bytes = 0;  // of an unknown type: nobody knows
  if (type != nullptr) {
    if (entry.dims.back() % type->elements != 0)
      fail("{}: rows of {} elements are not whole blocks of {}, which {} needs", entry.where, entry.dims.back(),
           type->elements, type->name);
    int64_t blocks = entry.dims.back() / type->elements;
    for (size_t d = 0; d + 1 < entry.dims.size(); ++d) blocks *= entry.dims[d];
    bytes = uint64_t(blocks) * uint64_t(type->bytes);
  }
  if (entry.offset > data.size() || bytes > data.size() - entry.offset)
    fail("{}: {} bytes at offset {} pass the end of the file ({} bytes of data): the file is truncated", entry.where,
         bytes, entry.offset, data.size());
  range = {entry.offset, entry.offset + bytes, entry.name};
  tensor.bytes = data.subspan(size_t(entry.offset), size_t(bytes));
  tensor.readable = type != nullptr && type->dtype.has_value();
  if (tensor.readable)
    tensor.view = TensorView(const_cast<std::byte*>(tensor.bytes.data()), *type->dtype, std::span(entry.dims));
  return tensor;
}

uint64_t alignment_of(const GgufContents& contents, const std::string& where) {
  const auto at = contents.metadata.find("general.alignment");
  if (at == contents.metadata.end()) return 32;
  const int64_t alignment = at->second.integer();
  if (alignment < 8 || alignment > (1 << 20) || !std::has_single_bit(uint64_t(alignment)))
    fail("{}: general.alignment is {}, want a power of two from 8 to 1048576", where, alignment);
  return uint64_t(alignment);
}

void refuse_overlaps(std::vector<Range>& ranges, const std::string& where) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      fail("{}: tensor {} overlaps tensor {}", where, printable(ranges[i].name), printable(ranges[i - 1].name));
}

// The number behind `marker` in a name like NAME-00001-of-00003.gguf: its five digits replaced by another number.
std::filesystem::path part_path(const std::filesystem::path& path, int64_t number, int64_t count) {
  const std::string name = path.filename().string(), tail = fmt::format("-of-{:05}.gguf", count);
  const size_t digits = 5;
  const bool fits = name.size() > tail.size() + digits && name.ends_with(tail);
  const size_t at = fits ? name.size() - tail.size() - digits : 0;
  if (!fits || name[at - 1] != '-' || name.find_first_not_of("0123456789", at) < at + digits)
    fail("{}: is one of {} files (split.count); medley finds the others by names like NAME-00001{}", path.string(),
         count, tail);
  return path.parent_path() / (name.substr(0, at) + fmt::format("{:05}", number) + tail);
}

int64_t split_value(const GgufFile& file, std::string_view key, int64_t fallback) {
  const GgufValue* value = file.find(key);
  return value != nullptr ? value->integer() : fallback;
}

}  // namespace

GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& where) {
  GgufReader reader(bytes, where);
  GgufContents contents;
  if (bytes.size() < 24 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
    fail("{}: does not begin as a GGUF file does ({} bytes)", where, bytes.size());
  reader.scalar<uint32_t>("the file's mark");
  contents.version = reader.scalar<uint32_t>("the version");
  if (contents.version == 0x02000000 || contents.version == 0x03000000)
    fail("{}: is big-endian; medley reads little-endian files. Convert it again for this kind of machine.", where);
  if (contents.version != 2 && contents.version != 3)
    fail("{}: GGUF version {}; medley reads 2 and 3", where, contents.version);
  const auto tensors = reader.count("tensors", 24), keys = reader.count("keys", 13);
  // Each costs a few hundred bytes to keep; the largest models have a few thousand tensors and some dozens of keys.
  if (tensors > 1 << 20 || keys > 1 << 16) fail("{}: {} tensors and {} keys are no real model", where, tensors, keys);

  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key(reader.string("a key"));
    const std::string at = fmt::format("{}: key {}", where, printable(key));
    if (!contents.metadata.emplace(key, reader.value(at)).second) fail("{}: is there twice", at);
  }
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < tensors; ++i) entries.push_back(read_tensor_entry(reader, where));

  const uint64_t alignment = alignment_of(contents, where);
  const uint64_t begin = (reader.position() + alignment - 1) / alignment * alignment;
  const auto data = begin <= bytes.size() ? bytes.subspan(size_t(begin)) : std::span<const std::byte>();
  std::vector<Range> ranges(entries.size());
  for (size_t i = 0; i < entries.size(); ++i)
    if (!contents.tensors.emplace(entries[i].name, place(entries[i], data, alignment, ranges[i])).second)
      fail("{}: is there twice", entries[i].where);
  refuse_overlaps(ranges, where);
  return contents;
}

GgufFile::GgufFile(const std::filesystem::path& path)
    : file_(path), contents_(parse_gguf(file_.bytes(), file_.path())) {}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at = contents_.metadata.find(key);
  return at == contents_.metadata.end() ? nullptr : &at->second;
}

const GgufValue& GgufFile::value(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) fail("{}: has no key {}", path(), key);
  return *value;
}

std::vector<GgufFile> open_gguf(const std::filesystem::path& path) {
  std::vector<GgufFile> files;
  files.emplace_back(path);
  const int64_t count = split_value(files[0], "split.count", 1);
  if (count <= 1) return files;
  if (count > 99999) fail("{}: split.count is {}", path.string(), count);
  files.clear();
  std::map<std::string, std::string> owners;
  for (int64_t i = 0; i < count; ++i) {
    const std::filesystem::path part = part_path(path, i + 1, count);
    if (!std::filesystem::exists(part)) fail("{}: is missing; the model is split into {} files", part.string(), count);
    files.emplace_back(part);
    if (split_value(files.back(), "split.count", 1) != count || split_value(files.back(), "split.no", i) != i)
      fail("{}: does not say that it is file {} of {} (split.no, split.count)", part.string(), i, count);
    for (const auto& [name, tensor] : files.back().tensors())
      if (const auto [at, fresh] = owners.emplace(name, part.string()); !fresh)
        fail("{}: tensor {} is also in {}", part.string(), printable(name), at->second);
  }
  return files;
}

}  // namespace medley
