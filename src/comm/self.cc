// A world of one: every collective is an identity.
#include <cstring>

#include "comm/communicator.h"

namespace medley {
namespace {

class SelfComm : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(const TensorView&) override {}
  void all_gather(const TensorView& in, const TensorView& out) override {
    MEDLEY_CHECK(in.dtype == out.dtype && in.contiguous() && out.contiguous() && in.elements() == out.elements());
    if (in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
  }
};

}  // namespace

std::unique_ptr<Communicator> make_self_comm() {
  return std::make_unique<SelfComm>();
}

}  // namespace medley
