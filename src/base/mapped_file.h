// A file mapped read-only: the only owner of the mapping. Views into it live as long as it does.
//
// A file that another program cuts short while it is mapped loses pages, and reading one raises SIGBUS. The first
// MappedFile installs a handler for that signal: inside a mapping the lost pages become zeros and the file counts as
// damaged, which check_intact() reports; anywhere else the handler that was there before decides.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace medley {

class MappedFile {
 public:
  // Throws Error naming the path when the file cannot be opened, is not a regular file, or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Throws Error if the file was found shorter than when it was mapped. Whoever has read what matters calls it before
  // using the result.
  void check_intact() const;

  // Tells the kernel that a range was packed elsewhere and its pages can go (they are read again if touched).
  void release(std::span<const std::byte> range) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int guard_ = -1;  // its entry among the mappings that the signal handler knows
};

}  // namespace medley
