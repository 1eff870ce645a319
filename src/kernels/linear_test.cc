// linear and grouped_linear at every level, against dot products in double, and rule 1: a row's bits do not depend on
// the rows beside it nor on the number of threads.
#include "kernels/linear.h"

#include "kernels/block_int8.h"
#include "kernels/moe.h"
#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

struct Shape {
  int64_t n, k;
};

// A sum of k products in any order, fused or not, in f32: at most k roundings of a partial sum no larger than the sum
// of the absolute products, and one more each for the bias and the residual.
double allowed(int64_t k, double absolute, double value, DType y) {
  return double(k + 3) * f32_unit * absolute + (y == DType::bf16 ? 1.01 * bf16_unit * std::abs(value) : 0) + 1e-30;
}

std::vector<LinearDesc> descriptions(const Shape& shape) {
  std::vector<LinearDesc> all;
  for (DType x : {DType::f32, DType::bf16})
    for (DType weight : {DType::f32, DType::bf16, DType::f16}) all.push_back({shape.k, shape.n, x, weight});
  for (DType x : {DType::f32, DType::bf16})
    for (DType weight : block_types)
      for (bool int8 : {false, true})
        if (shape.k % block_elements(weight) == 0) all.push_back({shape.k, shape.n, x, weight, int8});
  return all;
}

// x as the products take it.
std::vector<double> inputs(const LinearDesc& desc, const TensorView& x) {
  std::vector<double> values = doubles(x);
  for (size_t at = 0; desc.int8 && at < values.size(); at += block_int8::columns) {
    float part[block_int8::columns];
    int8_t q[block_int8::columns];
    std::copy_n(values.begin() + int64_t(at), block_int8::columns, part);
    const double scale = block_int8::quantise(part, q);
    for (size_t i = 0; i < block_int8::columns; ++i) values[at + i] = scale * q[i];
  }
  return values;
}

// One block type of each kind of kernel: with minima, of two bit planes, of bytes, of powers of two.
bool is_sample(DType weight) {
  return weight == DType::q4_k || weight == DType::q6_k || weight == DType::q8_0 || weight == DType::mxfp4;
}

// The linear of the same level and instruction set as another op's kernel.
template <class Desc, class Args>
Candidate<LinearDesc, LinearArgs> same_level(const Candidate<Desc, Args>& kernel, const LinearDesc& desc) {
  for (const auto& candidate : runnable(linear_op(), desc))
    if (candidate.implementation->level == kernel.implementation->level && candidate.target == kernel.target)
      return candidate;
  ADD_FAILURE() << "no linear like " << kernel.name();
  return runnable(linear_op(), desc)[0];
}

struct Variant {
  DType y;
  bool bias, accumulate;
};

// One case at every level. The oracle is computed once; each kernel packs the same weight its own way.
void expect_linear(const LinearDesc& desc, int64_t tokens, const Variant& variant, Machine& machine, Rng& rng) {
  const Rng weight_seed(rng());
  Rng copy = weight_seed;
  const Weight plain(copy, desc.weight, WeightLayout::row_major, desc.out, desc.in);
  Tensor x(desc.x, {tokens, desc.in}, 5), b(DType::f32, {1, desc.out}), before(variant.y, {tokens, desc.out});
  x.fill(rng);
  b.fill(rng);
  const Rng before_seed = rng;
  before.fill(rng);
  const std::vector<double> w = doubles(plain.dense), xs = inputs(desc, x);
  std::vector<Expected> expected;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < desc.out; ++n) {
      double sum = variant.bias ? get(b, {0, n}) : 0, absolute = std::abs(sum);
      for (int64_t k = 0; k < desc.in; ++k) {
        const double product = xs[size_t(t * desc.in + k)] * w[size_t(n * desc.in + k)];
        sum += product;
        absolute += std::abs(xs[size_t(t * desc.in + k)]) * plain.size_at(0, n, k);
      }
      if (variant.accumulate) {
        sum += get(before, {t, n});
        absolute += std::abs(get(before, {t, n}));
      }
      expected.push_back({sum, allowed(desc.in, absolute, sum, variant.y)});
    }
  for (const auto& kernel : runnable(linear_op(), desc)) {
    SCOPED_TRACE(fmt::format("{} {} tokens {} y {} bias {} accumulate {}", kernel.name(), desc.describe(), tokens,
                             name_of(variant.y), variant.bias, variant.accumulate));
    copy = weight_seed;
    const Weight weight(copy, desc.weight, kernel->layout, desc.out, desc.in);
    Tensor y(variant.y, {tokens, desc.out}, 3);
    copy = before_seed;
    if (variant.accumulate) y.fill(copy);
    launch(linear_op(), *kernel, {x, weight.view, variant.bias ? b.as<float>() : nullptr, y, variant.accumulate},
           machine.context);
    ASSERT_TRUE(matches(y, expected));
  }
}

TEST(Linear, EveryLevelComputesTheDotProducts) {
  Rng rng(1);
  Machine machine(2);
  const auto sweep = [&](const Shape& shape, std::initializer_list<int64_t> tokens) {
    for (const LinearDesc& desc : descriptions(shape))
      for (int64_t t : tokens) {
        expect_linear(desc, t, {DType::f32, t % 2 == 0, false}, machine, rng);
        expect_linear(desc, t, {DType::bf16, t % 2 == 1, false}, machine, rng);
        expect_linear(desc, t, {DType::f32, t % 2 == 1, true}, machine, rng);
      }
  };
  for (const Shape& shape : {Shape{1, 1}, {64, 2}, {65, 7}, {130, 33}, {63, 128}}) sweep(shape, {0, 1, 2, 5, 6, 7, 13});
  sweep({65, 256}, {0, 1, 3, 6, 7, 13});  // blocks of 256
  sweep({3, 1792}, {1, 7});               // several times as many units as are unpacked at once
  sweep({2, 160}, {1, 8});                // the last time fewer units
  sweep({3, 2051}, {1, 7});               // several blocks of k, the last one odd
  sweep({70, 9}, {193});                  // more rows than one task takes
}

// The bits of each row alone, in some companies, at one thread count after another.
void expect_same_bits(const LinearDesc& desc, int64_t rows, const std::vector<int64_t>& companies, DType y_type,
                      Rng& rng) {
  for (const auto& kernel : runnable(linear_op(), desc)) {
    SCOPED_TRACE(fmt::format("{} {} y {}", kernel.name(), desc.describe(), name_of(y_type)));
    const Weight weight(rng, desc.weight, kernel->layout, desc.out, desc.in);
    Tensor x(desc.x, {rows, desc.in}, 1), b(DType::f32, {desc.out});
    x.fill(rng);
    b.fill(rng);
    std::vector<std::vector<std::byte>> alone;
    Machine one(1);
    for (int64_t t = 0; t < rows; ++t) {
      Tensor y(y_type, {1, desc.out});
      launch(linear_op(), *kernel, {x.view().slice(0, t, 1), weight.view, b.as<float>(), y}, one.context);
      alone.push_back(y.row_bytes(0));
    }
    for (int threads = 1; threads <= 4; ++threads) {
      Machine machine(threads);
      for (int64_t m : companies) {
        const int64_t first = (rows - m) / 2;
        Tensor y(y_type, {m, desc.out}, 7);
        launch(linear_op(), *kernel, {x.view().slice(0, first, m), weight.view, b.as<float>(), y}, machine.context);
        for (int64_t t = 0; t < m; ++t)
          ASSERT_TRUE(y.row_bytes(t) == alone[size_t(first + t)])
              << "row " << t << " of " << m << " threads " << threads;
      }
    }
  }
}

TEST(Linear, ARowsBitsDependOnNeitherItsCompanyNorTheThreads) {
  Rng rng(2);
  for (const LinearDesc& desc : descriptions({130, 77}))
    for (DType y_type : {DType::f32, DType::bf16})
      expect_same_bits(desc, 129, {1, 2, 3, 5, 6, 7, 16, 64, 129}, y_type, rng);
  for (const LinearDesc& desc : descriptions({70, 768})) expect_same_bits(desc, 14, {1, 2, 6, 7, 14}, DType::f32, rng);
  for (const LinearDesc& desc : descriptions({321, 64})) expect_same_bits(desc, 16, {1, 5, 16}, DType::f32, rng);
  for (const LinearDesc& desc : descriptions({65, 2051})) expect_same_bits(desc, 9, {1, 2, 9}, DType::f32, rng);
  for (const LinearDesc& desc : descriptions({64, 6}))
    expect_same_bits(desc, 400, {191, 192, 193, 400}, DType::f32, rng);
}

TEST(Linear, TheBoundaryNamesWhatIsWrong) {
  Rng rng(3);
  const Weight weight(rng, DType::bf16, WeightLayout::row_major, 4, 8);
  Tensor x(DType::f32, {2, 7}), y(DType::f32, {2, 4});
  try {
    linear_op().check({x, weight.view, nullptr, y});
    FAIL() << "accepted x of 7 columns for a weight of 8";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[linear] x is f32 [2, 7], want f32 or bf16 [any, 8]");
  }
}

// Each head is linear with its own matrix: the same bits, any strides.
TEST(HeadwiseLinear, EveryHeadHasTheBitsOfLinear) {
  Rng rng(6);
  std::vector<LinearDesc> all = descriptions({70, 33});
  for (const LinearDesc& desc : descriptions({70, 256}))
    if (is_sample(desc.weight)) all.push_back(desc);
  for (const LinearDesc& linear : all) {
    if (linear.int8) continue;  // there is none
    const int64_t heads = 3;
    const HeadwiseLinearDesc desc{linear, heads};
    for (const auto& kernel : runnable(headwise_linear_op(), desc)) {
      const auto alone = same_level(kernel, linear);
      for (int64_t tokens : {0, 1, 7, 20})
        for (int threads : {1, 3}) {
          SCOPED_TRACE(fmt::format("{} {} tokens {}", kernel.name(), desc.describe(), tokens));
          Machine machine(threads);
          const DType y_type = tokens == 7 ? DType::bf16 : DType::f32;
          const Weight weight(rng, desc.weight, kernel->layout, desc.out, desc.in, heads);
          Tensor x(desc.x, {tokens, heads, desc.in + 3}, 5), y(y_type, {tokens, heads, desc.out}, 1);
          x.fill(rng);
          const TensorView part = x.view().slice(2, 1, desc.in);
          launch(headwise_linear_op(), *kernel, {part, weight.view, y}, machine.context);
          ASSERT_TRUE(y.complete());
          for (int64_t h = 0; h < heads; ++h) {
            WeightView matrix = weight.view;
            matrix.data += h * matrix.slot_bytes;
            matrix.slots = 1;
            TensorView head = part.slice(1, h, 1);
            head = TensorView(head.data, head.dtype, {tokens, desc.in});
            head.strides[0] = part.strides[0];
            Tensor want(y_type, {tokens, desc.out});
            launch(linear_op(), *alone, {head, matrix, nullptr, want}, machine.context);
            for (int64_t t = 0; t < tokens; ++t)
              for (int64_t n = 0; n < desc.out; ++n) ASSERT_EQ(get(y, {t, h, n}), get(want, {t, n}));
          }
        }
    }
  }
}

// Tokens routed at random, with slots nobody chose, and the alignment that the moe op makes of them.
struct Routed {
  int64_t pairs;
  Tensor ids, sorted, experts, padded;
  Routed(Rng& rng, int64_t tokens, int64_t top_k, int32_t slots, int64_t block_m, Machine& machine)
      : pairs(tokens * top_k),
        ids(DType::i32, {tokens, top_k}),
        sorted(DType::i32, {align_capacity(pairs, slots, block_m)}),
        experts(DType::i32, {align_capacity(pairs, slots, block_m) / block_m}),
        padded(DType::i32, {1}) {
    for (int64_t i = 0; i < pairs; ++i) ids.as<int32_t>()[i] = int32_t(rng() % uint32_t((slots + 1) / 2)) * 2;
    AlignArgs args{ids, nullptr, slots, slots, block_m, sorted, experts, padded};
    launch(align_op(), *align_op().implementations[0], args, machine.context);
  }
};

TEST(GroupedLinear, EveryLevelComputesEachPairsDotProducts) {
  Rng rng(4);
  Machine machine(2);
  for (const Shape& shape : {Shape{65, 7}, {130, 34}, {1, 1}, {66, 256}})
    for (const LinearDesc& linear : descriptions(shape)) {
      const int32_t slots = 5;
      const GroupedLinearDesc desc{linear, slots};
      for (int64_t tokens : {0, 1, 3, 20})
        for (int64_t divisor : {1, 2}) {
          const bool bias = tokens % 2 == 1;
          const DType y_type = tokens == 3 ? DType::bf16 : DType::f32;
          const Routed routed(rng, tokens, 2, slots, 4, machine);
          Tensor x(desc.x, {routed.pairs / divisor, desc.in}, 2), b(DType::f32, {slots, desc.out});
          x.fill(rng);
          b.fill(rng);
          const std::vector<double> xs = inputs(desc, x);
          const Rng seed = rng;
          Rng same = seed;
          const Weight plain(same, desc.weight, WeightLayout::row_major, desc.out, desc.in, slots);
          std::vector<Expected> expected;
          for (int64_t p = 0; p < routed.pairs; ++p)
            for (int64_t n = 0; n < desc.out; ++n) {
              const int64_t slot = routed.ids.as<int32_t>()[p];
              double sum = bias ? get(b, {slot, n}) : 0, absolute = std::abs(sum);
              for (int64_t k = 0; k < desc.in; ++k) {
                const double at = xs[size_t(p / divisor * desc.in + k)];
                sum += at * plain.at(slot, n, k);
                absolute += std::abs(at) * plain.size_at(slot, n, k);
              }
              expected.push_back({sum, allowed(desc.in, absolute, sum, y_type)});
            }
          for (const auto& kernel : runnable(grouped_linear_op(), desc)) {
            SCOPED_TRACE(fmt::format("{} {} tokens {} divisor {}", kernel.name(), desc.describe(), tokens, divisor));
            same = seed;
            const Weight weight(same, desc.weight, kernel->layout, desc.out, desc.in, slots);
            Tensor y(y_type, {routed.pairs, desc.out}, 1);
            launch(grouped_linear_op(), *kernel,
                   {x, divisor, weight.view, bias ? b.as<float>() : nullptr, y, routed.sorted.as<int32_t>(),
                    routed.experts.as<int32_t>(), routed.padded.as<int32_t>(), routed.pairs, 4},
                   machine.context);
            ASSERT_TRUE(matches(y, expected));
          }
        }
    }
}

// A pair's bits are those of its token alone through its expert's matrix: the number of tokens an expert happens to
// have, the block size and the threads change nothing. And they are the bits of linear itself, so that a shared expert
// may be run either way.
TEST(GroupedLinear, APairsBitsAreThoseOfItsTokenAlone) {
  Rng rng(5);
  std::vector<LinearDesc> all = descriptions({130, 77});
  for (const LinearDesc& desc : descriptions({65, 256}))
    if (is_sample(desc.weight)) all.push_back(desc);
  for (const LinearDesc& linear : all) {
    const int32_t slots = 7;
    const GroupedLinearDesc desc{linear, slots};
    for (const auto& kernel : runnable(grouped_linear_op(), desc)) {
      SCOPED_TRACE(fmt::format("{} {}", kernel.name(), desc.describe()));
      const auto alone = same_level(kernel, linear);
      const Weight weight(rng, desc.weight, kernel->layout, desc.out, desc.in, slots);
      for (int threads = 1; threads <= 4; ++threads)
        for (int64_t block_m : {threads == 1 ? 1 : 4 * threads, 64}) {
          Machine machine(threads);
          const int64_t tokens = 23;
          const Routed routed(rng, tokens, 2, slots, block_m, machine);
          Tensor x(desc.x, {tokens, desc.in});
          x.fill(rng);
          Tensor y(DType::f32, {routed.pairs, desc.out});
          launch(grouped_linear_op(), *kernel,
                 {x, 2, weight.view, nullptr, y, routed.sorted.as<int32_t>(), routed.experts.as<int32_t>(),
                  routed.padded.as<int32_t>(), routed.pairs, block_m},
                 machine.context);
          for (int64_t p = 0; p < routed.pairs; ++p) {
            WeightView slot = weight.view;
            slot.data += routed.ids.as<int32_t>()[p] * slot.slot_bytes;
            slot.slots = 1;
            Tensor want(DType::f32, {1, desc.out});
            launch(linear_op(), *alone, {x.view().slice(0, p / 2, 1), slot, nullptr, want}, machine.context);
            ASSERT_TRUE(y.row_bytes(p) == want.row_bytes(0)) << "pair " << p;
          }
        }
    }
  }
}

}  // namespace
}  // namespace medley
