#include "weights/checkpoint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace medley {
namespace {

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

// weight_map of the index: tensor -> file name in the same folder.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const nlohmann::json index = read_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail("{}: has no weight_map object", path.string());
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) fail("{}: weight_map names no file for {}", path.string(), tensor);
    const std::string name = file.get<std::string>();
    if (name.empty() || std::filesystem::path(name).filename() != name || name == "..")
      fail("{}: {} is said to be in \"{}\"; a shard must lie in the same folder", path.string(), tensor, name);
    map[tensor] = name;
  }
  return map;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder) : folder_(folder) {
  const bool single = std::filesystem::exists(folder / single_name);
  const bool sharded = std::filesystem::exists(folder / index_name);
  if (!single && !sharded) fail("{}: has neither {} nor {}", folder.string(), single_name, index_name);
  if (single) {
    files_.emplace_back(folder / single_name);
    add(files_.back());
    return;
  }
  const std::map<std::string, std::string> index = read_index(folder / index_name);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  files_.reserve(names.size());  // entries point into it
  for (const std::string& name : names) {
    if (!std::filesystem::exists(folder / name))
      fail("{}: the shard {} that {} lists is missing", folder.string(), name, index_name);
    files_.emplace_back(folder / name);
    add(files_.back());
  }
  for (const auto& [tensor, file] : index) {
    const Entry* entry = find(tensor);
    if (entry == nullptr || std::filesystem::path(entry->file->path()).filename() != file)
      fail("{}: {} lists tensor {} in {}, which does not have it", folder.string(), index_name, tensor, file);
  }
  for (const auto& [tensor, entry] : tensors_)
    if (!index.contains(tensor)) fail("{}: tensor {} is not listed in {}", entry.file->path(), tensor, index_name);
}

Checkpoint::Checkpoint(std::vector<GgufFile> files, const std::function<std::string(const std::string&)>& rename)
    : gguf_files_(std::move(files)) {
  MEDLEY_CHECK(!gguf_files_.empty());
  for (const GgufFile& file : gguf_files_)
    for (const auto& [name, tensor] : file.tensors())
      if (const std::string renamed = rename(name); !renamed.empty()) add(renamed, tensor, file.file());
}

void Checkpoint::add(const std::string& name, Entry entry) {
  const uint64_t bytes = entry.tensor.bytes.size();
  const MappedFile& file = *entry.file;
  const auto [at, fresh] = tensors_.emplace(name, std::move(entry));
  if (!fresh) fail("{}: tensor {} is also in {}", file.path(), name, at->second.file->path());
  total_bytes_ += bytes;
}

void Checkpoint::add(const std::string& name, const StoredTensor& tensor, const MappedFile& file) {
  add(name, Entry{tensor, &file, {}});
}

void Checkpoint::add(const std::string& name, ConvertedTensor tensor, const MappedFile& file) {
  StoredTensor stored;
  stored.dtype_name = name_of(tensor.dtype);
  stored.readable = true;
  stored.view = TensorView(nullptr, tensor.dtype, std::span<const int64_t>(tensor.shape));
  stored.bytes = {static_cast<const std::byte*>(nullptr), stored.view.bytes()};
  add(name, Entry{std::move(stored), &file, std::move(tensor)});
}

void Checkpoint::add(const SafetensorsFile& file) {
  for (const auto& [name, tensor] : file.tensors()) add(name, tensor, file.file());
}

const Checkpoint::Entry* Checkpoint::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

void Checkpoint::release(std::span<const std::byte> range) const {
  const auto release_in = [&](const MappedFile& file) {
    const std::span<const std::byte> bytes = file.bytes();
    if (range.data() >= bytes.data() && range.data() < bytes.data() + bytes.size()) file.release(range);
  };
  for (const SafetensorsFile& file : files_) release_in(file.file());
  for (const GgufFile& file : gguf_files_) release_in(file.file());
}

void Checkpoint::check_intact() const {
  for (const SafetensorsFile& file : files_) file.file().check_intact();
  for (const GgufFile& file : gguf_files_) file.file().check_intact();
}

std::string Checkpoint::describe() const {
  const size_t files = files_.size() + gguf_files_.size();
  if (files == 1) return files_.empty() ? gguf_files_[0].path() : files_[0].path();
  const std::string where = gguf_files_.empty() ? folder_.string() : gguf_files_[0].path();
  return fmt::format("{} ({} files)", where, files);
}

}  // namespace medley
