#include "tensor/uploader.h"

namespace medley {

Uploader::Uploader(int threads, size_t piece_bytes) : piece_bytes_(piece_bytes), lanes_(size_t(threads)) {
  for (Lane& lane : lanes_) {
    for (PinnedBuffer& piece : lane.pieces) piece = PinnedBuffer(piece_bytes, Device::cuda);
    for (StreamMark& done : lane.done) done = StreamMark(Device::cuda);
    lane.stream = Stream(Device::cuda);
  }
}

std::byte* Uploader::piece(int thread) {
  Lane& lane = lanes_.at(size_t(thread));
  lane.done[lane.next].wait();
  return lane.pieces[lane.next].data();
}

void Uploader::send(int thread, std::byte* to, size_t bytes) {
  Lane& lane = lanes_.at(size_t(thread));
  MEDLEY_CHECK(bytes <= piece_bytes_);
  copy_async(to, lane.pieces[lane.next].data(), bytes, lane.stream.get());
  lane.done[lane.next].record(lane.stream.get());
  lane.next ^= 1;
}

void Uploader::finish() {
  for (const Lane& lane : lanes_) synchronize(lane.stream.get());
}

}  // namespace medley
