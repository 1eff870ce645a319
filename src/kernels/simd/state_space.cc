// The recurrences through Highway, in token order as ref/ has them: one arithmetic for decode and prefill, so that a
// chunk may end anywhere.
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/state_space.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/simd/math-inl.h"
#include "kernels/simd/vector-inl.h"
#include "kernels/state_rows.h"
#include "kernels/state_space.h"

#ifndef MEDLEY_SIMD_STATE_SPACE_ROWS
#define MEDLEY_SIMD_STATE_SPACE_ROWS
namespace medley::simd {

// `count` rows of `length` floats into rows of `stride`, zeros after them; from null: all zeros.
inline void pad_rows(const float* from, int64_t count, int64_t length, int64_t stride, float* to) {
  if (from == nullptr) {
    std::fill_n(to, count * stride, 0.0f);
  } else if (length == stride) {
    std::copy_n(from, count * stride, to);
  } else {
    for (int64_t r = 0; r < count; ++r)
      std::fill(std::copy_n(from + r * length, length, to + r * stride), to + (r + 1) * stride, 0.0f);
  }
}
inline void unpad_rows(const float* from, int64_t count, int64_t length, int64_t stride, float* to) {
  if (length == stride) {
    std::copy_n(from, count * stride, to);
  } else {
    for (int64_t r = 0; r < count; ++r) std::copy_n(from + r * stride, length, to + r * length);
  }
}

constexpr int64_t scan_channels = 128;  // channels of one task, whose states stay in the first-level cache
constexpr int64_t scan_tokens = 16;     // tokens between two passes over a task's channels
constexpr int64_t conv_channels = 256;
constexpr int64_t ssd_rows = 32;  // rows of a head's state in one task: 16 KB at 128 states

}  // namespace medley::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace medley::simd {
namespace HWY_NAMESPACE {

// y = act(bias + sum over j of weight[j] * x[t - (width - 1) + j]) for `lanes` channels, the inputs in registers.
template <int width>
void conv_vector(const CausalConvArgs& a, const StateRow& row, int64_t channel) {
  const D d;
  const int64_t channels = a.x.size(1), count = std::min<int64_t>(lanes, channels - channel);
  const auto get = [&](const float* from) HWY_ATTR { return count == lanes ? load(from) : load_tail(from, count); };
  const auto put = [&](V value, float* to)
                       HWY_ATTR { count == lanes ? store(value, to) : store_tail(value, to, count); };
  HWY_ALIGN float weights[lanes * width] = {};
  std::copy_n(a.weight + channel * width, count * width, weights);
  V w[width], x[width];
  if constexpr (width == 2) hn::LoadInterleaved2(d, weights, w[0], w[1]);
  if constexpr (width == 3) hn::LoadInterleaved3(d, weights, w[0], w[1], w[2]);
  if constexpr (width == 4) hn::LoadInterleaved4(d, weights, w[0], w[1], w[2], w[3]);
  const V bias = a.bias != nullptr ? get(a.bias + channel) : hn::Zero(d);
  for (int j = 1; j < width; ++j)
    x[j] = row.read != nullptr ? get(row.read + (j - 1) * channels + channel) : hn::Zero(d);
  for (int64_t t = row.begin; t < row.end; ++t) {
    HWY_UNROLL(4)
    for (int j = 1; j < width; ++j) x[j - 1] = x[j];
    x[width - 1] = get(a.x.row<float>(t) + channel);
    V sum = bias;
    HWY_UNROLL(4)
    for (int j = 0; j < width; ++j) sum = hn::MulAdd(w[j], x[j], sum);
    put(a.silu ? silu(d, sum) : sum, a.y.row<float>(t) + channel);
  }
  if (row.write == nullptr) return;
  for (int j = 1; j < width; ++j) put(x[j], row.write + (j - 1) * channels + channel);
}

void conv_part(const CausalConvArgs& a, const StateRow& row, int64_t first, int64_t last) {
  for (int64_t channel = first; channel < last; channel += lanes) {
    if (a.width == 2) conv_vector<2>(a, row, channel);
    if (a.width == 3) conv_vector<3>(a, row, channel);
    if (a.width == 4) conv_vector<4>(a, row, channel);
  }
}

void run_conv(const CausalConvArgs& a, ExecContext& context) {
  const int64_t channels = a.x.size(1), parts = (channels + conv_channels - 1) / conv_channels;
  context.threads.parallel_for(a.rows.num_rows * parts, [&](int64_t task, int) {
    const int64_t first = task % parts * conv_channels;
    conv_part(a, state_row(a.rows, a.state, task / parts), first, std::min(first + conv_channels, channels));
  });
}

// A row of b or c for each token, whole vectors long.
struct TokenRows {
  const float* data;
  int64_t stride;
  const float* row(int64_t t) const { return data + t * stride; }
};

// Rows [begin, begin + tokens) of `from`, in place where they are whole vectors, else padded into `memory`.
HWY_INLINE TokenRows whole_rows(const TensorView& from, int64_t begin, int64_t tokens, int64_t offset, int64_t length,
                                float* memory) {
  if (length % lanes == 0) return {from.row<float>(begin) + offset, from.strides[0]};
  const int64_t padded = round_up(length);
  for (int64_t t = 0; t < tokens; ++t)
    pad_rows(from.row<float>(begin + t) + offset, 1, length, padded, memory + t * padded);
  return {memory, padded};
}

// One task's memory: the padded states and decay rates of its channels, and per token what its passes hand on.
struct ScanScratch {
  float *state, *rate, *b_memory, *c_memory, *dt, *input, *sum;
  TokenRows b, c;

  static int64_t floats(int64_t padded) {
    return 2 * scan_channels * padded + 2 * scan_tokens * padded + 3 * scan_tokens * scan_channels;
  }
  ScanScratch(float* memory, int64_t padded) {
    state = memory;
    rate = state + scan_channels * padded;
    b_memory = rate + scan_channels * padded;
    c_memory = b_memory + scan_tokens * padded;
    dt = c_memory + scan_tokens * padded;
    input = dt + scan_tokens * scan_channels;
    sum = input + scan_tokens * scan_channels;
  }
};

// dt = softplus(dt + bias) and dt * x of `count` channels at one token. The buffers hold scan_channels; what is after
// `count` is computed from zeros and not used.
void scan_steps(const SelectiveScanArgs& a, int64_t t, int64_t first, int64_t count, float* dt, float* input) {
  const D d;
  for (int64_t i = 0; i < count; i += lanes) {
    V raw = load_at(a.dt.row<float>(t) + first, i, count);
    if (a.dt_bias != nullptr) raw = hn::Add(raw, load_at(a.dt_bias + first, i, count));
    const V step = softplus(d, raw);
    store(step, dt + i);
    store(hn::Mul(step, load_at(a.x.row<float>(t) + first, i, count)), input + i);
  }
}

// s = exp(dt * rate) * s + input * b.
HWY_INLINE V next_state(V s, float dt, V rate, float input, V b) {
  const D d;
  return hn::MulAdd(exp(d, hn::Mul(hn::Set(d, dt), rate)), s, hn::Mul(hn::Set(d, input), b));
}

// Four channels over `tokens` tokens; sum = s . c.
void scan_states(const ScanScratch& m, int64_t channel, int64_t tokens, int64_t padded) {
  const D d;
  float* state = m.state + channel * padded;
  const float* rate = m.rate + channel * padded;
  for (int64_t t = 0; t < tokens; ++t) {
    const float *dt = m.dt + t * scan_channels + channel, *input = m.input + t * scan_channels + channel;
    V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t n = 0; n < padded; n += lanes) {
      const V b = load(m.b.row(t) + n), c = load(m.c.row(t) + n);
      HWY_UNROLL(4)
      for (int i = 0; i < 4; ++i) {
        const V s = next_state(load(state + i * padded + n), dt[i], load(rate + i * padded + n), input[i], b);
        store(s, state + i * padded + n);
        sums[i] = hn::MulAdd(s, c, sums[i]);
      }
    }
    store_sums(sums, m.sum + t * scan_channels + channel);
  }
}

// The same where a channel's states are one vector (16 states on AVX-512): they stay in registers.
void scan_states_in_registers(const ScanScratch& m, int64_t channel, int64_t tokens) {
  const D d;
  V states[4], rates[4];
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    states[i] = load(m.state + (channel + i) * lanes);
    rates[i] = load(m.rate + (channel + i) * lanes);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const float *dt = m.dt + t * scan_channels + channel, *input = m.input + t * scan_channels + channel;
    const V b = load(m.b.row(t)), c = load(m.c.row(t));
    V sums[4];
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      states[i] = next_state(states[i], dt[i], rates[i], input[i], b);
      sums[i] = hn::MulAdd(states[i], c, hn::Zero(d));
    }
    store_sums(sums, m.sum + t * scan_channels + channel);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) store(states[i], m.state + (channel + i) * lanes);
}

template <class Y>
void scan_outputs(const SelectiveScanArgs& a, int64_t t, int64_t first, int64_t count, const float* sum) {
  const D d;
  for (int64_t i = 0; i < count; i += lanes) {
    V y = hn::MulAdd(load_at(a.d + first, i, count), load_at(a.x.row<float>(t) + first, i, count), load(sum + i));
    if (a.z) y = hn::Mul(y, silu(d, load_at(a.z.row<float>(t) + first, i, count)));
    store_at(y, a.y.row<Y>(t) + first, i, count);
  }
}

void scan_part(const SelectiveScanArgs& a, const StateRow& row, int64_t first, int64_t count, float* memory) {
  const int64_t states = a.b.size(1), padded = round_up(states);
  ScanScratch m(memory, padded);
  // Whole groups of four channels: those after `count` run on zeros.
  const int64_t fours = (count + 3) / 4 * 4;
  pad_rows(row.read != nullptr ? row.read + first * states : nullptr, count, states, padded, m.state);
  pad_rows(a.a + first * states, count, states, padded, m.rate);
  pad_rows(nullptr, fours - count, states, padded, m.state + count * padded);
  pad_rows(nullptr, fours - count, states, padded, m.rate + count * padded);
  for (int64_t begin = row.begin; begin < row.end; begin += scan_tokens) {
    const int64_t tokens = std::min(scan_tokens, row.end - begin);
    m.b = whole_rows(a.b, begin, tokens, 0, states, m.b_memory);
    m.c = whole_rows(a.c, begin, tokens, 0, states, m.c_memory);
    for (int64_t t = 0; t < tokens; ++t)
      scan_steps(a, begin + t, first, count, m.dt + t * scan_channels, m.input + t * scan_channels);
    for (int64_t channel = 0; channel < count; channel += 4)
      padded == lanes ? scan_states_in_registers(m, channel, tokens) : scan_states(m, channel, tokens, padded);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* sum = m.sum + t * scan_channels;
      a.y.dtype == DType::bf16 ? scan_outputs<bf16>(a, begin + t, first, count, sum)
                               : scan_outputs<float>(a, begin + t, first, count, sum);
    }
  }
  if (row.write != nullptr) unpad_rows(m.state, count, states, padded, row.write + first * states);
}

void run_selective(const SelectiveScanArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t channels = a.x.size(1), parts = (channels + scan_channels - 1) / scan_channels;
  const TensorView memory =
      context.workspace.alloc(DType::f32, {context.threads.size(), ScanScratch::floats(round_up(a.b.size(1)))});
  context.threads.parallel_for(a.rows.num_rows * parts, [&](int64_t task, int worker) {
    const int64_t first = task % parts * scan_channels;
    scan_part(a, state_row(a.rows, a.state, task / parts), first, std::min(scan_channels, channels - first),
              memory.row<float>(worker));
  });
}

// Four rows of a head's state at one token: s = decay * s + dt * x * b, sum = s . c.
HWY_INLINE void ssd_step(float* state, const float* input, float decay, const float* b, const float* c, int64_t padded,
                         float* sum) {
  const D d;
  const V factor = hn::Set(d, decay);
  const V x[4] = {hn::Set(d, input[0]), hn::Set(d, input[1]), hn::Set(d, input[2]), hn::Set(d, input[3])};
  V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t n = 0; n < padded; n += lanes) {
    const V bn = load(b + n), cn = load(c + n);
    HWY_UNROLL(4)
    for (int i = 0; i < 4; ++i) {
      const V s = hn::MulAdd(factor, load(state + i * padded + n), hn::Mul(x[i], bn));
      store(s, state + i * padded + n);
      sums[i] = hn::MulAdd(s, cn, sums[i]);
    }
  }
  store_sums(sums, sum);
}

// Rows [first, first + count) of one head's state over the row's tokens. `memory` holds the padded state, b and c.
void ssd_part(const SsdScanArgs& a, const StateRow& row, int64_t head, int64_t first, int64_t count, float* memory) {
  const D d;
  const int64_t dim = a.x.size(2), states = a.b.size(2), padded = round_up(states);
  const int64_t group = head / (a.x.size(1) / a.b.size(1)), offset = (head * dim + first) * states;
  float *state = memory, *b_memory = state + ssd_rows * padded, *c_memory = b_memory + padded;
  const int64_t fours = (count + 3) / 4 * 4;
  pad_rows(row.read != nullptr ? row.read + offset : nullptr, count, states, padded, state);
  pad_rows(nullptr, fours - count, states, padded, state + count * padded);
  HWY_ALIGN float input[ssd_rows], sum[ssd_rows];
  for (int64_t t = row.begin; t < row.end; ++t) {
    const float* b = whole_rows(a.b, t, 1, group * a.b.strides[1], states, b_memory).data;
    const float* c = whole_rows(a.c, t, 1, group * a.c.strides[1], states, c_memory).data;
    const float raw = a.dt.row<float>(t)[head] + (a.dt_bias != nullptr ? a.dt_bias[head] : 0.0f);
    const float dt = std::clamp(hn::GetLane(softplus(d, hn::Set(d, raw))), a.dt_min, a.dt_max);
    const float decay = hn::GetLane(exp(d, hn::Set(d, dt * a.a[head])));
    const float* x = a.x.row<float>(t) + head * a.x.strides[1] + first;
    for (int64_t p = 0; p < fours; ++p) input[p] = p < count ? dt * x[p] : 0.0f;
    for (int64_t p = 0; p < count; p += 4) ssd_step(state + p * padded, input + p, decay, b, c, padded, sum + p);
    float* y = a.y.row<float>(t) + head * a.y.strides[1] + first;
    for (int64_t p = 0; p < count; ++p) y[p] = sum[p] + a.d[head] * x[p];
  }
  if (row.write != nullptr) unpad_rows(state, count, states, padded, row.write + offset);
}

void run_ssd(const SsdScanArgs& a, ExecContext& context) {
  const Workspace::Scope scope(context.workspace);
  const int64_t heads = a.x.size(1), dim = a.x.size(2), parts = (dim + ssd_rows - 1) / ssd_rows;
  const TensorView memory =
      context.workspace.alloc(DType::f32, {context.threads.size(), (ssd_rows + 2) * round_up(a.b.size(2))});
  context.threads.parallel_for(a.rows.num_rows * heads * parts, [&](int64_t task, int worker) {
    const int64_t first = task % parts * ssd_rows, head = task / parts % heads;
    ssd_part(a, state_row(a.rows, a.state, task / parts / heads), head, first, std::min(ssd_rows, dim - first),
             memory.row<float>(worker));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace medley::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace medley::simd {
namespace {

HWY_EXPORT(run_conv);
HWY_EXPORT(run_selective);
HWY_EXPORT(run_ssd);

void conv(const CausalConvArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_conv)(a, context);
}
void selective(const SelectiveScanArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_selective)(a, context);
}
void ssd(const SsdScanArgs& a, ExecContext& context) {
  HWY_DYNAMIC_DISPATCH(run_ssd)(a, context);
}

std::string supports_conv(const CausalConvDesc& desc) {
  return desc.width >= 2 && desc.width <= 4 ? "" : "takes widths 2 to 4";
}
std::string supports_selective(const SelectiveScanDesc&) {
  return {};
}
std::string supports_ssd(const SsdScanDesc&) {
  return {};
}

}  // namespace

extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv{"simd.causal_conv1d", Level::simd,
                                                                        supports_conv, conv};
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan{"simd.selective_scan", Level::simd,
                                                                                 supports_selective, selective};
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan{"simd.ssd_scan", Level::simd, supports_ssd, ssd};

}  // namespace medley::simd
#endif
