// The recurrences in token order, one channel block or head at a time: the plain meaning, and the path whose result no
// chunking can change.
#include "kernels/state_space.h"

#include <algorithm>
#include <vector>

#include "kernels/ref/scalar.h"
#include "kernels/state_rows.h"

namespace medley::ref {
namespace {

constexpr int64_t channels_per_task = 64;

void run_conv(const CausalConvArgs& a, ExecContext& context) {
  const int64_t channels = a.x.size(1), tail = a.width - 1;
  const int64_t parts = (channels + channels_per_task - 1) / channels_per_task;
  context.threads.parallel_for(a.rows.num_rows * parts, [&](int64_t task, int) {
    const StateRow row = state_row(a.rows, a.state, task / parts);
    const int64_t first = task % parts * channels_per_task;
    std::vector<float> inputs;  // the tail, then the new tokens, of one channel
    for (int64_t c = first; c < std::min(first + channels_per_task, channels); ++c) {
      inputs.assign(size_t(tail), 0.0f);
      if (row.read != nullptr)
        for (int64_t j = 0; j < tail; ++j) inputs[size_t(j)] = row.read[j * channels + c];
      for (int64_t t = row.begin; t < row.end; ++t) inputs.push_back(a.x.row<float>(t)[c]);
      const int64_t count = row.end - row.begin;
      for (int64_t t = 0; t < count; ++t) {
        float sum = a.bias != nullptr ? a.bias[c] : 0.0f;
        for (int64_t j = 0; j < a.width; ++j) sum += a.weight[c * a.width + j] * inputs[size_t(t + j)];
        a.y.row<float>(row.begin + t)[c] = a.silu ? silu(sum) : sum;
      }
      if (row.write != nullptr)
        for (int64_t j = 0; j < tail; ++j) row.write[j * channels + c] = inputs[size_t(count + j)];
    }
  });
}

template <class Y>
void scan_channel(const SelectiveScanArgs& a, const StateRow& row, int64_t channel, std::vector<float>& state) {
  const int64_t states = a.b.size(1);
  const float* decay = a.a + channel * states;
  state.assign(size_t(states), 0.0f);
  if (row.read != nullptr) std::copy_n(row.read + channel * states, states, state.begin());
  for (int64_t t = row.begin; t < row.end; ++t) {
    const float x = a.x.row<float>(t)[channel];
    const float dt = softplus(a.dt.row<float>(t)[channel] + (a.dt_bias != nullptr ? a.dt_bias[channel] : 0.0f));
    const float* b = a.b.row<float>(t);
    const float* c = a.c.row<float>(t);
    float sum = 0;
    for (int64_t n = 0; n < states; ++n) {
      state[size_t(n)] = std::exp(dt * decay[n]) * state[size_t(n)] + dt * b[n] * x;
      sum += state[size_t(n)] * c[n];
    }
    float y = sum + a.d[channel] * x;
    if (a.z) y *= silu(a.z.row<float>(t)[channel]);
    store(a.y.row<Y>(t) + channel, y);
  }
  if (row.write != nullptr) std::copy_n(state.begin(), states, row.write + channel * states);
}

void run_selective(const SelectiveScanArgs& a, ExecContext& context) {
  const int64_t channels = a.x.size(1);
  const int64_t parts = (channels + channels_per_task - 1) / channels_per_task;
  with_float_type(a.y.dtype, [&](auto* type) {
    using Y = std::remove_pointer_t<decltype(type)>;
    context.threads.parallel_for(a.rows.num_rows * parts, [&](int64_t task, int) {
      const StateRow row = state_row(a.rows, a.state, task / parts);
      const int64_t first = task % parts * channels_per_task;
      std::vector<float> state;
      for (int64_t c = first; c < std::min(first + channels_per_task, channels); ++c) scan_channel<Y>(a, row, c, state);
    });
  });
}

void scan_head(const SsdScanArgs& a, const StateRow& row, int64_t head) {
  const int64_t heads = a.x.size(1), dim = a.x.size(2), states = a.b.size(2);
  const int64_t group = head / (heads / a.b.size(1));
  std::vector<float> state(size_t(dim * states), 0.0f);
  if (row.read != nullptr) std::copy_n(row.read + head * dim * states, dim * states, state.begin());
  for (int64_t t = row.begin; t < row.end; ++t) {
    const float raw = a.dt.row<float>(t)[head] + (a.dt_bias != nullptr ? a.dt_bias[head] : 0.0f);
    const float dt = std::clamp(softplus(raw), a.dt_min, a.dt_max);
    const float decay = std::exp(dt * a.a[head]);
    const float* x = a.x.row<float>(t) + head * a.x.strides[1];
    const float* b = a.b.row<float>(t) + group * a.b.strides[1];
    const float* c = a.c.row<float>(t) + group * a.c.strides[1];
    float* y = a.y.row<float>(t) + head * a.y.strides[1];
    for (int64_t p = 0; p < dim; ++p) {
      float* s = &state[size_t(p * states)];
      const float input = dt * x[p];
      for (int64_t n = 0; n < states; ++n) s[n] = decay * s[n] + input * b[n];
      y[p] = dot(s, c, states) + a.d[head] * x[p];
    }
  }
  if (row.write != nullptr) std::copy(state.begin(), state.end(), row.write + head * dim * states);
}

void run_ssd(const SsdScanArgs& a, ExecContext& context) {
  const int64_t heads = a.x.size(1);
  context.threads.parallel_for(a.rows.num_rows * heads, [&](int64_t task, int) {
    scan_head(a, state_row(a.rows, a.state, task / heads), task % heads);
  });
}

}  // namespace

extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv{"ref.causal_conv1d", Level::ref, any, run_conv};
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan{"ref.selective_scan", Level::ref, any,
                                                                                 run_selective};
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan{"ref.ssd_scan", Level::ref, any, run_ssd};

}  // namespace medley::ref
