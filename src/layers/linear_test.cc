// Linear and ExpertLinear over every block type, merged parts of different types, and the embedding tied to a head:
// against the same weights dequantised.
#include "layers/linear.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "kernels/moe.h"
#include "kernels/pointwise.h"
#include "kernels/test_blocks.h"
#include "kernels/test_tensors.h"
#include "weights/gguf_types.h"
#include "weights/test_gguf.h"

namespace medley {
namespace {

using namespace test;

uint32_t gguf_id(DType dtype) {
  for (uint32_t id = 0; id < 64; ++id)
    if (const GgufTensorType* type = find_gguf_tensor_type(id); type != nullptr && type->dtype == dtype) return id;
  return ~0u;
}

// A GGUF file of random tensors, and a context that loads from it.
class LinearTest : public testing::Test {
 protected:
  struct Stored {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };

  ~LinearTest() override { std::filesystem::remove(path_); }

  void store(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
    std::vector<std::byte> bytes;
    if (is_block(dtype)) {
      bytes = random_blocks(rng_, dtype, rows, shape.back());
    } else {
      Tensor values(dtype, {rows, shape.back()});
      bytes = values.fill(rng_, 0.05f).bytes();
    }
    stored_.push_back({name, dtype, shape, std::move(bytes)});
  }

  LoadContext& open(DType dtype = DType::f32, Level highest = Level::avx512) {
    GgufBytes file(stored_.size(), 0);
    uint64_t at = 0;
    for (const Stored& tensor : stored_) {
      file.tensor(tensor.name, std::vector<uint64_t>(tensor.shape.rbegin(), tensor.shape.rend()), gguf_id(tensor.dtype),
                  at);
      at += (tensor.bytes.size() + 31) / 32 * 32;
    }
    file.pad();
    for (const Stored& tensor : stored_)
      file.raw({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}).pad();
    std::ofstream(path_, std::ios::binary) << file.str();
    checkpoint_.emplace(open_gguf(path_), [](const std::string& name) { return name; });
    loader_.emplace(*checkpoint_, shard_);
    selector_.emplace(Device::cpu, highest);
    context_.emplace(LoadContext{*loader_, *selector_, *comm_, machine_.pool, dtype});
    return *context_;
  }

  std::vector<double> dequantized(const std::string& name) {
    const TensorView view = checkpoint_->find(name)->tensor.view;
    std::vector<float> values(size_t(view.elements()));
    dequantize(view, values.data());
    return {values.begin(), values.end()};
  }

  // A row's product in double, and what the kernels may differ by: see linear_test.cc of kernels. The parts of a
  // block's value, d q and m, are summed apart, so their sizes count, not that of their difference.
  static Expected product(const TensorView& x, int64_t row, const std::vector<double>& w, int64_t n, int64_t k) {
    double sum = 0, absolute = 0;
    for (int64_t i = 0; i < k; ++i) {
      sum += get(x, {row, i}) * w[size_t(n * k + i)];
      absolute += std::abs(get(x, {row, i})) * 8 / std::sqrt(double(k));  // no d |q| + |m| is larger
    }
    return {sum, double(k + 8) * f32_unit * (absolute + std::abs(sum))};
  }

  Rng rng_{7};
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) /
      fmt::format("medley_{}_{}.gguf", testing::UnitTest::GetInstance()->current_test_info()->name(), ::getpid());
  std::vector<Stored> stored_;
  Shard shard_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<WeightLoader> loader_;
  std::optional<KernelSelector> selector_;
  std::unique_ptr<Communicator> comm_ = make_self_comm();
  Machine machine_{2};
  std::optional<LoadContext> context_;
};

TEST_F(LinearTest, EveryBlockTypeMultipliesAsItsDequantisedWeights) {
  const int64_t n = 70, k = 512, tokens = 3;
  for (DType type : block_types) store(std::string(name_of(type)), type, {n, k});
  for (DType dtype : {DType::f32, DType::bf16})
    for (Level level : {Level::ref, Level::simd, Level::avx512}) {
      LoadContext& context = open(dtype, level);
      for (DType type : block_types) {
        SCOPED_TRACE(fmt::format("{} x {} {}", name_of(type), name_of(dtype), name_of(level)));
        const std::string name(name_of(type));
        const Linear linear(context, {{name, "", n, k, {}}});
        Tensor x(dtype, {tokens, k}), y(DType::f32, {tokens, n}, 2);
        x.fill(rng_);
        linear(x, y, machine_.context);
        const std::vector<double> w = dequantized(name);
        std::vector<Expected> expected;
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < n; ++i) expected.push_back(product(x, t, w, i, k));
        EXPECT_TRUE(matches(y, expected));
      }
      loader_->finish();
    }
}

// Q4_K_M files keep attn_v in Q6_K beside q and k in Q4_K.
TEST_F(LinearTest, MergedPartsMayHaveDifferentTypes) {
  const int64_t k = 256, tokens = 5;
  const std::vector<std::pair<DType, int64_t>> types{
      {DType::q4_k, 96}, {DType::q4_k, 40}, {DType::q6_k, 33}, {DType::bf16, 17}, {DType::q4_k, 8}};
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string name = fmt::format("w{}", i);
    store(name, types[i].first, {types[i].second, k});
    store(name + ".bias", DType::f32, {types[i].second});
    parts.push_back({name, name + ".bias", types[i].second, k, {}});
  }
  LoadContext& context = open();
  const Linear linear(context, parts);
  EXPECT_EQ(linear.out(), 194);
  EXPECT_EQ(linear.in(), k);
  Tensor x(DType::f32, {tokens, k}), y(DType::f32, {tokens, linear.out()}, 3);
  x.fill(rng_);
  linear(x, y, machine_.context);
  std::vector<Expected> expected;
  for (int64_t t = 0; t < tokens; ++t)
    for (const LinearPart& part : parts) {
      const std::vector<double> w = dequantized(part.weight), b = dequantized(part.bias);
      for (int64_t i = 0; i < part.out; ++i) {
        Expected one = product(x, t, w, i, k);
        one.value += b[size_t(i)];
        expected.push_back(one);
      }
    }
  EXPECT_TRUE(matches(y, expected));
  loader_->finish();
}

// Experts whose gate and up differ in type, with a bias: each pair's row is its expert's product.
TEST_F(LinearTest, ExpertsPartsMayHaveDifferentTypes) {
  const int64_t slots = 3, inner = 65, k = 256, tokens = 4, block_m = 2;
  store("gate", DType::q5_k, {slots, inner, k});
  store("up", DType::q8_0, {slots, inner, k});
  store("bias", DType::f32, {slots, 2 * inner});
  LoadContext& context = open();
  const TensorView gate = loader_->take("gate", {slots, inner, k}), up = loader_->take("up", {slots, inner, k});
  const std::vector<float> bias = loader_->take_floats("bias", {slots, 2 * inner});
  std::vector<std::vector<TensorView>> views;
  for (int64_t s = 0; s < slots; ++s) {
    std::vector<TensorView> parts;
    for (const TensorView& stack : {gate, up}) {
      const TensorView one = stack.slice(0, s, 1);
      parts.emplace_back(one.data, one.dtype, std::initializer_list<int64_t>{inner, k});
    }
    views.push_back(parts);
  }
  const ExpertLinear experts(context, views, bias);
  EXPECT_EQ(experts.slots(), slots);
  // Token t goes to expert t % 3; slot 0 has two pairs, the others one and padding.
  const Tensor sorted = int_tensor({0, 3, 1, 99, 2, 99}), ids = int_tensor({0, 1, 2}), padded = int_tensor({6});
  Tensor x(DType::f32, {tokens, k}), y(DType::f32, {tokens, 2 * inner});
  x.fill(rng_);
  experts({.x = x,
           .y = y,
           .sorted_token_ids = sorted.as<int32_t>(),
           .expert_ids = ids.as<int32_t>(),
           .num_tokens_post_padded = padded.as<int32_t>(),
           .num_pairs = tokens,
           .block_m = block_m},
          machine_.context);
  const std::vector<double> wg = dequantized("gate"), wu = dequantized("up");
  std::vector<Expected> expected;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < 2 * inner; ++i) {
      const int64_t slot = t % slots, row = slot * inner + i % inner;
      Expected one = product(x, t, i < inner ? wg : wu, row, k);
      one.value += bias[size_t(slot * 2 * inner + i)];
      expected.push_back(one);
    }
  EXPECT_TRUE(matches(y, expected));
}

TEST_F(LinearTest, ATransposedBlockMatrixIsPackedInFloat32) {
  store("kv_b", DType::q8_0, {64, 96});
  LoadContext& context = open();
  TensorView view = loader_->take("kv_b", {64, 96});
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  EXPECT_EQ(packed_dtype(context, view), DType::f32);
  const PackedMatrices packed = pack_matrices(context, WeightLayout::panel, {{view}});
  const std::vector<double> w = dequantized("kv_b");
  for (int64_t r = 0; r < 96; ++r)
    for (int64_t c = 0; c < 64; ++c) ASSERT_EQ(double(weight_at(packed.view, 0, r, c)), w[size_t(c * 96 + r)]);
}

// A tied table: the rows gathered from the head's own packed matrix are the file's.
TEST_F(LinearTest, AnEmbeddingReadsTheHeadsMatrix) {
  const int64_t vocab = 131, dim = 512;
  for (DType type : {DType::q6_k, DType::q8_0}) {
    stored_.clear();
    store("table", type, {vocab, dim});
    LoadContext& context = open(DType::bf16);
    const Linear head(context, {{"table", "", vocab, dim, {}}});
    const auto embed = context.kernels.resolve(embedding_op(), {.dim = dim, .weight = type});
    const Tensor ids = int_tensor({130, 0, 64, 131, -1});
    Tensor y(DType::f32, {5, dim});
    embed({.ids = ids, .table = head.weight(), .scale = 2, .y = y}, machine_.context);
    const std::vector<double> w = dequantized("table");
    std::vector<Expected> expected;
    for (int64_t id : {130, 0, 64, -1, -1})
      for (int64_t i = 0; i < dim; ++i) expected.push_back({id < 0 ? 0 : 2 * w[size_t(id * dim + i)], 0});
    EXPECT_TRUE(matches(y, expected));
  }
}

// Two ranks' halves of the columns add up to the whole; three cannot share two blocks.
TEST_F(LinearTest, ShardsFallOnBlockBorders) {
  store("w", DType::q4_k, {64, 512});
  for (int world : {2, 4}) {
    double most = 0;
    for (int rank = 0; rank < world; ++rank) {
      shard_ = {rank, world};
      LoadContext& context = open();
      if (world == 4) {
        EXPECT_THAT(
            [&] {
              Linear(context, {{"w", "", 64, 512, {.dim = 1, .units = 4}}});
            },
            testing::ThrowsMessage<Error>(testing::HasSubstr("tensor w: columns 0 to 128 are this rank's part, "
                                                             "which cuts blocks of 256 (q4_k)")));
        break;
      }
      const Linear linear(context, {{"w", "", 64, 512, {.dim = 1, .units = 2}}});
      Tensor x(DType::f32, {1, 256}), y(DType::f32, {1, 64});
      x.fill(rng_);
      linear(x, y, machine_.context);
      const std::vector<double> w = dequantized("w");
      for (int64_t n = 0; n < 64; ++n) {
        double sum = 0;
        for (int64_t c = 0; c < 256; ++c) sum += get(x, {0, c}) * w[size_t(n * 512 + rank * 256 + c)];
        most = std::max(most, std::abs(sum - get(y, {0, n})));
      }
    }
    EXPECT_LE(most, 1e-4);
  }
}

}  // namespace
}  // namespace medley
