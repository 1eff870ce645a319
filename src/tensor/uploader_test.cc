#include "tensor/uploader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace medley {
namespace {

// Many more pieces than the threads have, of any size, each to its own place.
TEST(Uploader, EveryPieceArrives) {
  if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  constexpr int threads = 3, pieces = 50;
  constexpr size_t piece_bytes = 4096;
  Uploader uploader(threads, piece_bytes);
  const Buffer memory(threads * pieces * piece_bytes, Device::cuda);
  fill_bytes(memory.data(), 0xff, memory.bytes(), Device::cuda);
  const auto size_of_piece = [](int piece) { return size_t(1 + piece * 997 % int(piece_bytes)); };
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      for (int piece = 0; piece < pieces; ++piece) {
        std::memset(uploader.piece(thread), thread * pieces + piece, size_of_piece(piece));
        uploader.send(thread, memory.data() + size_t(thread * pieces + piece) * piece_bytes, size_of_piece(piece));
      }
    });
  for (std::thread& thread : running) thread.join();
  uploader.finish();
  std::vector<uint8_t> got(memory.bytes());
  copy_bytes(got.data(), memory.data(), got.size());
  for (int i = 0; i < threads * pieces; ++i) {
    const size_t size = size_of_piece(i % pieces);
    for (size_t b = 0; b < piece_bytes; ++b)
      ASSERT_EQ(got[size_t(i) * piece_bytes + b], b < size ? uint8_t(i) : 0xff) << "piece " << i << ", byte " << b;
  }
}

}  // namespace
}  // namespace medley
