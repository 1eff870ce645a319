// The state-space ops at every level against recurrences in double, and bits that do not depend on where chunks end.
#include "kernels/state_space.h"

#include "kernels/test_states.h"

namespace medley {
namespace {

using namespace test;

double silu(double x) {
  return x / (1 + std::exp(-x));
}
double softplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

TEST(CausalConv, EveryLevelConvolvesOverTheTail) {
  Rng rng(1);
  Machine machine(2);
  for (int64_t channels : {1, 5, 64, 131})
    for (int64_t width : {1, 2, 4})
      for (bool activate : {true, false})
        for (const auto& kernel : runnable(causal_conv_op(), {channels, width})) {
          SCOPED_TRACE(fmt::format("{} {} channels width {}", kernel.name(), channels, width));
          const Rows rows(step_rows);
          States states(channels * (width - 1), 5);
          states.fill(rng);
          std::vector<std::vector<float>> before;
          for (int64_t s = 0; s < 5; ++s) before.push_back(states.copy(s));
          Tensor x(DType::f32, {rows.view.num_tokens, channels}, 3), weight(DType::f32, {channels, width}),
              bias(DType::f32, {channels}), y(DType::f32, {rows.view.num_tokens, channels}, 1);
          x.fill(rng);
          weight.fill(rng);
          bias.fill(rng);
          launch(causal_conv_op(), *kernel,
                 {x, weight.as<float>(), activate ? bias.as<float>() : nullptr, width, activate, rows.view,
                  states.view(step_reads, step_writes), y},
                 machine.context);
          ASSERT_TRUE(y.complete());
          for (int64_t r = 0; r < 4; ++r)
            for (int64_t c = 0; c < channels; ++c) {
              std::vector<double> inputs;
              for (int64_t j = 0; j < width - 1; ++j)
                inputs.push_back(step_reads[size_t(r)] < 0
                                     ? 0
                                     : double(before[size_t(step_reads[size_t(r)])][size_t(j * channels + c)]));
              for (int32_t i = 0; i < step_rows[size_t(r)].fresh; ++i) inputs.push_back(get(x, {rows.first(r) + i, c}));
              for (int32_t i = 0; i < step_rows[size_t(r)].fresh; ++i) {
                double sum = activate ? get(bias, {c}) : 0, absolute = std::abs(sum);
                for (int64_t j = 0; j < width; ++j) {
                  sum += get(weight, {c, j}) * inputs[size_t(i + j)];
                  absolute += std::abs(get(weight, {c, j}) * inputs[size_t(i + j)]);
                }
                // width + 1 roundings; silu's slope is at most 1.1, and it adds a few units of its own.
                const double want = activate ? silu(sum) : sum;
                ASSERT_NEAR(get(y, {rows.first(r) + i, c}), want,
                            (double(width) + 2) * 1.1 * f32_unit * absolute + 8 * f32_unit * std::abs(want));
              }
              for (int64_t j = 0; step_writes[size_t(r)] >= 0 && j < width - 1; ++j)
                ASSERT_EQ(states.at(step_writes[size_t(r)])[j * channels + c],
                          inputs[inputs.size() - size_t(width - 1) + size_t(j)]);
            }
          ASSERT_EQ(states.copy(2), before[2]);  // read only
        }
}

struct ScanInputs {
  Tensor x, dt, b, c, z, a, d, dt_bias;
  ScanInputs(Rng& rng, int64_t tokens, int64_t channels, int64_t states)
      : x(DType::f32, {tokens, channels}, 1),
        dt(DType::f32, {tokens, channels}, 2),
        b(DType::f32, {tokens, states}, 3),
        c(DType::f32, {tokens, states}, 4),
        z(DType::f32, {tokens, channels}, 5),
        a(DType::f32, {channels, states}),
        d(DType::f32, {channels}),
        dt_bias(DType::f32, {channels}) {
    for (Tensor* tensor : {&x, &dt, &b, &c, &z, &d, &dt_bias}) tensor->fill(rng);
    a.fill(rng);
    for (int64_t i = 0; i < channels * states; ++i) a.as<float>()[i] = -std::exp(a.as<float>()[i]);
    if (tokens > 0) dt.as<float>()[0] = 25;  // softplus beyond its threshold
  }
  SelectiveScanArgs args(int64_t first, const Rows& rows, const StateSlots& slots, bool gated, bool biased,
                         const TensorView& y) const {
    const int64_t n = rows.view.num_tokens;
    const auto part = [&](const Tensor& tensor) { return tensor.view().slice(0, first, n); };
    SelectiveScanArgs args{part(x),       part(dt), part(b),   part(c), {}, a.as<float>(),
                           d.as<float>(), nullptr,  rows.view, slots,   y};
    if (gated) args.z = part(z);
    if (biased) args.dt_bias = dt_bias.as<float>();
    return args;
  }
};

TEST(SelectiveScan, EveryLevelFollowsTheRecurrence) {
  Rng rng(2);
  Machine machine(2);
  for (int64_t channels : {1, 6, 64, 130})
    for (int64_t n_states : {1, 7, 16, 20})
      for (int variant = 0; variant < 3; ++variant) {
        const DType y_type = variant == 2 ? DType::bf16 : DType::f32;
        const bool gated = variant != 1, biased = variant != 2;
        for (const auto& kernel : runnable(selective_scan_op(), {channels, n_states, y_type})) {
          SCOPED_TRACE(fmt::format("{} {} channels {} states variant {}", kernel.name(), channels, n_states, variant));
          const Rows rows(step_rows);
          const ScanInputs in(rng, rows.view.num_tokens, channels, n_states);
          States states(channels * n_states, 5);
          states.fill(rng);
          std::vector<std::vector<float>> before;
          for (int64_t s = 0; s < 5; ++s) before.push_back(states.copy(s));
          Tensor y(y_type, {rows.view.num_tokens, channels}, 1);
          launch(selective_scan_op(), *kernel, in.args(0, rows, states.view(step_reads, step_writes), gated, biased, y),
                 machine.context);
          ASSERT_TRUE(y.complete());
          for (int64_t r = 0; r < 4; ++r)
            for (int64_t c = 0; c < channels; ++c) {
              std::vector<double> s(size_t(n_states), 0.0), size(size_t(n_states), 0.0);
              for (int64_t n = 0; n < n_states && step_reads[size_t(r)] >= 0; ++n)
                s[size_t(n)] = before[size_t(step_reads[size_t(r)])][size_t(c * n_states + n)];
              for (int64_t n = 0; n < n_states; ++n) size[size_t(n)] = std::abs(s[size_t(n)]);
              const double depth = step_rows[size_t(r)].fresh + 1;
              for (int64_t t = rows.first(r); t < rows.first(r) + step_rows[size_t(r)].fresh; ++t) {
                const double dt = softplus(get(in.dt, {t, c}) + (biased ? get(in.dt_bias, {c}) : 0));
                double sum = get(in.d, {c}) * get(in.x, {t, c}), absolute = std::abs(sum);
                for (int64_t n = 0; n < n_states; ++n) {
                  const double input = dt * get(in.b, {t, n}) * get(in.x, {t, c});
                  const double decay = std::exp(dt * get(in.a, {c, n}));
                  s[size_t(n)] = decay * s[size_t(n)] + input;
                  // exp(u) is off by |u| units for its argument's rounding; |u| exp(u) stays under 1/e.
                  size[size_t(n)] = decay * size[size_t(n)] + std::abs(input) + 0.4 * size[size_t(n)];
                  sum += s[size_t(n)] * get(in.c, {t, n});
                  absolute += size[size_t(n)] * std::abs(get(in.c, {t, n}));
                }
                const double gate = gated ? silu(get(in.z, {t, c})) : 1;
                // A state carries about 8 roundings per token it has seen, the sum one per state.
                const double bound = (8 * depth + double(n_states) + 8) * f32_unit * absolute * std::abs(gate) +
                                     1.01 * unit_of(y_type) * std::abs(sum * gate);
                ASSERT_NEAR(get(y, {t, c}), sum * gate, bound) << "row " << r << " token " << t << " channel " << c;
              }
              for (int64_t n = 0; step_writes[size_t(r)] >= 0 && n < n_states; ++n)
                ASSERT_NEAR(states.at(step_writes[size_t(r)])[c * n_states + n], s[size_t(n)],
                            8 * depth * f32_unit * size[size_t(n)]);
            }
          ASSERT_EQ(states.copy(2), before[2]);
        }
      }
}

struct SsdShape {
  int64_t heads, dim, states, groups;
};

struct SsdInputs {
  Tensor x, dt, b, c, a, d, dt_bias;
  SsdInputs(Rng& rng, int64_t tokens, const SsdShape& s)
      : x(DType::f32, {tokens, s.heads, s.dim}, 1),
        dt(DType::f32, {tokens, s.heads}, 2),
        b(DType::f32, {tokens, s.groups, s.states}, 3),
        c(DType::f32, {tokens, s.groups, s.states}, 4),
        a(DType::f32, {s.heads}),
        d(DType::f32, {s.heads}),
        dt_bias(DType::f32, {s.heads}) {
    for (Tensor* tensor : {&x, &dt, &b, &c, &d, &dt_bias, &a}) tensor->fill(rng);
    for (int64_t h = 0; h < s.heads; ++h) a.as<float>()[h] = -std::exp(a.as<float>()[h]);
  }
  SsdScanArgs args(int64_t first, const Rows& rows, const StateSlots& slots, const TensorView& y) const {
    const int64_t n = rows.view.num_tokens;
    const auto part = [&](const Tensor& tensor) { return tensor.view().slice(0, first, n); };
    return {part(x), part(dt),  part(b), part(c), a.as<float>(), d.as<float>(), dt_bias.as<float>(), 0.05f,
            1.5f,    rows.view, slots,   y};
  }
};

const std::vector<SsdShape> ssd_shapes = {{1, 1, 1, 1}, {4, 16, 16, 2}, {6, 5, 33, 3}, {2, 64, 128, 1}, {3, 7, 20, 1}};

TEST(SsdScan, EveryLevelFollowsTheRecurrence) {
  Rng rng(3);
  Machine machine(2);
  for (const SsdShape& shape : ssd_shapes)
    for (const auto& kernel : runnable(ssd_scan_op(), {shape.heads, shape.dim, shape.states, shape.groups})) {
      SCOPED_TRACE(fmt::format("{} {} heads of {} x {}", kernel.name(), shape.heads, shape.dim, shape.states));
      const Rows rows(step_rows);
      const SsdInputs in(rng, rows.view.num_tokens, shape);
      States states(shape.heads * shape.dim * shape.states, 5);
      states.fill(rng);
      std::vector<std::vector<float>> before;
      for (int64_t s = 0; s < 5; ++s) before.push_back(states.copy(s));
      Tensor y(DType::f32, {rows.view.num_tokens, shape.heads, shape.dim}, 1);
      launch(ssd_scan_op(), *kernel, in.args(0, rows, states.view(step_reads, step_writes), y), machine.context);
      ASSERT_TRUE(y.complete());
      for (int64_t r = 0; r < 4; ++r)
        for (int64_t h = 0; h < shape.heads; ++h)
          for (int64_t p = 0; p < shape.dim; ++p) {
            const int64_t offset = (h * shape.dim + p) * shape.states, group = h / (shape.heads / shape.groups);
            std::vector<double> s(size_t(shape.states), 0.0), size(size_t(shape.states), 0.0);
            for (int64_t n = 0; n < shape.states && step_reads[size_t(r)] >= 0; ++n)
              s[size_t(n)] = before[size_t(step_reads[size_t(r)])][size_t(offset + n)];
            for (int64_t n = 0; n < shape.states; ++n) size[size_t(n)] = std::abs(s[size_t(n)]);
            const double depth = step_rows[size_t(r)].fresh + 1;
            for (int64_t t = rows.first(r); t < rows.first(r) + step_rows[size_t(r)].fresh; ++t) {
              const double raw = softplus(get(in.dt, {t, h}) + get(in.dt_bias, {h}));
              const double dt = std::clamp(raw, double(0.05f), double(1.5f));
              const double decay = std::exp(dt * get(in.a, {h}));
              double sum = get(in.d, {h}) * get(in.x, {t, h, p}), absolute = std::abs(sum);
              for (int64_t n = 0; n < shape.states; ++n) {
                const double input = dt * get(in.x, {t, h, p}) * get(in.b, {t, group, n});
                s[size_t(n)] = decay * s[size_t(n)] + input;
                size[size_t(n)] = (decay + 0.4) * size[size_t(n)] + std::abs(input);
                sum += s[size_t(n)] * get(in.c, {t, group, n});
                absolute += size[size_t(n)] * std::abs(get(in.c, {t, group, n}));
              }
              ASSERT_NEAR(get(y, {t, h, p}), sum, (8 * depth + double(shape.states) + 4) * f32_unit * absolute)
                  << "row " << r << " token " << t << " head " << h << " element " << p;
            }
            for (int64_t n = 0; step_writes[size_t(r)] >= 0 && n < shape.states; ++n)
              ASSERT_NEAR(states.at(step_writes[size_t(r)])[offset + n], s[size_t(n)],
                          8 * depth * f32_unit * size[size_t(n)]);
          }
    }
}

TEST(CausalConv, ChunksMayEndAnywhere) {
  Rng rng(4);
  for (int64_t width : {2, 4})
    for (const auto& kernel : runnable(causal_conv_op(), {300, width})) {
      SCOPED_TRACE(kernel.name());
      Tensor x(DType::f32, {60, 300}), weight(DType::f32, {300, width});
      x.fill(rng);
      weight.fill(rng);
      expect_chunking_is_free(
          rng, 60, 300 * (width - 1), {60, 300},
          [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
            launch(causal_conv_op(), *kernel,
                   {x.view().slice(0, first, rows.view.num_tokens), weight.as<float>(), nullptr, width, true, rows.view,
                    slots, y},
                   machine.context);
          });
    }
}

TEST(SelectiveScan, ChunksMayEndAnywhere) {
  Rng rng(5);
  for (int64_t n_states : {5, 16})
    for (const auto& kernel : runnable(selective_scan_op(), {150, n_states, DType::f32})) {
      SCOPED_TRACE(kernel.name());
      const ScanInputs in(rng, 60, 150, n_states);
      expect_chunking_is_free(
          rng, 60, 150 * n_states, {60, 150},
          [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
            launch(selective_scan_op(), *kernel, in.args(first, rows, slots, true, true, y), machine.context);
          });
    }
}

TEST(SsdScan, ChunksMayEndAnywhere) {
  Rng rng(6);
  for (const SsdShape& s : ssd_shapes)
    for (const auto& kernel : runnable(ssd_scan_op(), {s.heads, s.dim, s.states, s.groups})) {
      SCOPED_TRACE(kernel.name());
      const SsdInputs in(rng, 60, s);
      expect_chunking_is_free(
          rng, 60, s.heads * s.dim * s.states, {60, s.heads, s.dim},
          [&](int64_t first, const Rows& rows, const StateSlots& slots, Machine& machine, const TensorView& y) {
            launch(ssd_scan_op(), *kernel, in.args(first, rows, slots, y), machine.context);
          });
    }
}

}  // namespace
}  // namespace medley
