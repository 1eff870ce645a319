#include "kernels/random.h"

#include <algorithm>

#include "base/thread_pool.h"

namespace medley {
namespace {

template <class T>
void fill(const TensorView& view, uint64_t seed, float scale, ThreadPool& threads) {
  constexpr int64_t run = int64_t(1) << 16;
  const int64_t count = view.elements();
  T* data = view.as<T>();
  threads.parallel_for((count + run - 1) / run, [&](int64_t task, int) {
    for (int64_t i = task * run; i < std::min(count, (task + 1) * run); ++i)
      data[i] = T(random_element(seed, uint64_t(i)) * scale);
  });
}

}  // namespace

void fill_random(const TensorView& view, uint64_t seed, float scale, ThreadPool& threads) {
  MEDLEY_CHECK(view.contiguous());
  if (view.device == Device::cuda) {
    cuda::fill_random(view, seed, scale);
  } else if (view.dtype == DType::bf16) {
    fill<bf16>(view, seed, scale, threads);
  } else {
    fill<float>(view, seed, scale, threads);
  }
}

}  // namespace medley
