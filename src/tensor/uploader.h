// Brings what threads prepare in host memory to the device: each thread fills one of two page-locked pieces of its own
// while the copy of the other is under way.
#pragma once

#include <array>
#include <vector>

#include "tensor/device_memory.h"

namespace medley {

class Uploader {
 public:
  explicit Uploader(int threads, size_t piece_bytes = size_t(4) << 20);

  size_t piece_bytes() const { return piece_bytes_; }
  // Memory for this thread's next piece; waits for the copy that used it last.
  std::byte* piece(int thread);
  // Starts the copy of that piece's first `bytes` bytes to device memory.
  void send(int thread, std::byte* to, size_t bytes);
  // All that was sent has arrived.
  void finish();

 private:
  struct Lane {
    std::array<PinnedBuffer, 2> pieces;
    std::array<StreamMark, 2> done;
    Stream stream;
    size_t next = 0;
  };

  size_t piece_bytes_;
  std::vector<Lane> lanes_;
};

}  // namespace medley
