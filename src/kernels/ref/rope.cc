#include "kernels/rope.h"

#include "kernels/ref/scalar.h"

namespace medley::ref {
namespace {

void run_angles(const RopeAnglesArgs& a, ExecContext& context) {
  const int64_t half = a.table.size(1) / 2;
  context.threads.parallel_for(a.positions.size(0), [&](int64_t t, int) {
    float* row = a.table.row<float>(t);
    for (int64_t i = 0; i < half; ++i) {
      const float angle = float(a.positions.as<int32_t>()[t]) * a.inv_freq[i];
      row[i] = std::cos(angle) * a.factor;
      row[half + i] = std::sin(angle) * a.factor;
    }
  });
}

void run_rope(const RopeArgs& a, ExecContext& context) {
  const int64_t half = a.table.size(1) / 2;
  context.threads.parallel_for(a.x.size(0), [&](int64_t t, int) {
    const float* cosine = a.table.row<float>(t);
    const float* sine = cosine + half;
    for (int64_t h = 0; h < a.x.size(1); ++h) {
      float* x = a.x.row<float>(t) + h * a.x.strides[1];
      for (int64_t i = 0; i < half; ++i) {
        float& first = x[a.interleaved ? 2 * i : i];
        float& second = x[a.interleaved ? 2 * i + 1 : i + half];
        const float u = first, v = second;
        first = u * cosine[i] - v * sine[i];
        second = v * cosine[i] + u * sine[i];
      }
    }
  });
}

}  // namespace

extern const Implementation<RopeAnglesDesc, RopeAnglesArgs> rope_angles{"ref.rope_angles", Level::ref, any, run_angles};
extern const Implementation<RopeDesc, RopeArgs> rope{"ref.rope", Level::ref, any, run_rope};

}  // namespace medley::ref
