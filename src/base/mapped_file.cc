#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/mapped_guard.h"

namespace medley {

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path.string()) {
  // Non-blocking: a pipe must not wait for a writer. Links are followed: model hubs keep files behind them.
  const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("{}: cannot be opened: {}", path_, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail("{}: is not a regular file", path_);
  }
  size_ = size_t(info.st_size);
  if (size_ != 0) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
      const int reason = errno;
      ::close(fd);
      fail("{}: cannot be mapped ({} bytes): {}", path_, size_, std::strerror(reason));
    }
    data_ = static_cast<const std::byte*>(mapped);
    guard_ = mapped_guard::add(data_, size_);
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  mapped_guard::remove(guard_);
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      guard_(std::exchange(other.guard_, -1)) {}

void MappedFile::check_intact() const {
  if (mapped_guard::damaged(guard_))
    fail("{}: became shorter than the {} bytes it had while it was being read; is it still being written?", path_,
         size_);
}

void MappedFile::release(std::span<const std::byte> range) const {
  if (range.empty()) return;
  // Only whole pages inside the range: its neighbours may still be in use.
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data() + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace medley
