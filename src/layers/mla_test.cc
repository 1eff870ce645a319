// The two paths of latent attention over one cache: equal up to rounding, across pieces and chunks.
#include "layers/mla.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

namespace medley {
namespace {

constexpr int64_t hidden = 48, heads = 3, rank = 40, nope = 12, rope_dim = 8, v_dim = 20;
constexpr int32_t per_block = 16;

// A layer's weights in a checkpoint of their own.
std::filesystem::path write_weights() {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> storage;
  std::map<std::string, TensorView> tensors;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    std::vector<float>& values = storage.emplace_back(size_t(rows * columns));
    for (float& value : values)
      value = columns == 1 ? 1 + 0.2f * normal(random) : normal(random) / std::sqrt(float(columns));
    tensors[name] = columns == 1 ? TensorView(values.data(), DType::f32, {rows})
                                 : TensorView(values.data(), DType::f32, {rows, columns});
  };
  storage.reserve(8);
  add("q_proj.weight", heads * (nope + rope_dim), hidden);
  add("kv_a_proj_with_mqa.weight", rank + rope_dim, hidden);
  add("kv_a_layernorm.weight", rank, 1);
  add("kv_b_proj.weight", heads * (nope + v_dim), rank);
  add("o_proj.weight", hidden, heads * v_dim);
  const auto folder = std::filesystem::path(testing::TempDir()) /
                      fmt::format("medley_mla_test_{}", ::getpid());  // tests run side by side
  std::filesystem::create_directories(folder);
  write_safetensors(folder / "model.safetensors", tensors);
  return folder;
}

class MlaTest : public testing::TestWithParam<DType> {
 protected:
  MlaTest() : checkpoint_(write_weights()), threads_(2), comm_(make_self_comm()), exec_{threads_, workspace_} {}

  // Runs `tokens` tokens of one row in chunks of the given sizes; y [tokens, hidden].
  std::vector<float> run(MlaPath path, const std::vector<int64_t>& chunks, const std::vector<float>& x) {
    WeightLoader weights(checkpoint_, {});
    KernelSelector kernels(Device::cpu);
    LoadContext context{weights, kernels, *comm_, threads_, GetParam()};
    CacheLayout layout(per_block);
    const Mla mla(context, spec(), layout, path);
    const Rope rope(context, {.dim = rope_dim, .interleaved = true});
    const int64_t tokens = int64_t(x.size()) / hidden;
    const KvCacheSpec& cache = layout.specs()[0];
    const int64_t blocks = (tokens + per_block - 1) / per_block;
    const Buffer arena(size_t(blocks * cache.unit_bytes()));
    std::vector<float> y(x.size(), NAN);
    int64_t computed = 0;
    for (const int64_t chunk : chunks) {
      run_chunk(mla, rope, cache, arena, x, y, computed, chunk);
      computed += chunk;
    }
    EXPECT_EQ(computed, tokens);
    return y;
  }

  int64_t piecewise_from(MlaPath path, bool reproducible) {
    WeightLoader weights(checkpoint_, {});
    KernelSelector kernels(Device::cpu);
    LoadContext context{weights, kernels, *comm_, threads_, GetParam(), reproducible};
    CacheLayout layout(per_block);
    return Mla(context, spec(), layout, path).piecewise_from();
  }

 private:
  static MlaSpec spec() {
    return {.hidden = hidden,
            .heads = heads,
            .kv_lora_rank = rank,
            .qk_nope_head_dim = nope,
            .qk_rope_head_dim = rope_dim,
            .v_head_dim = v_dim,
            .scale = 1 / std::sqrt(float(nope + rope_dim))};
  }

  void run_chunk(const Mla& mla, const Rope& rope, const KvCacheSpec& cache, const Buffer& arena,
                 const std::vector<float>& x, std::vector<float>& y, int64_t computed, int64_t chunk) {
    const Workspace::Scope scope(workspace_);
    const int64_t blocks = (computed + chunk + per_block - 1) / per_block;
    std::vector<int32_t> positions, offsets{0, int32_t(chunk)}, done{int32_t(computed)}, table;
    std::vector<int64_t> slots;
    // Blocks lie backwards, so that a table that is not followed shows.
    const int64_t last = int64_t(arena.bytes()) / cache.unit_bytes() - 1;
    for (int64_t b = 0; b < blocks; ++b) table.push_back(int32_t((last - b) * per_block));
    for (int64_t p = computed; p < computed + chunk; ++p) {
      positions.push_back(int32_t(p));
      slots.push_back(table[size_t(p / per_block)] + p % per_block);
    }
    Step step{.num_tokens = chunk, .num_rows = 1, .rows = {{0, int32_t(chunk), int32_t(computed)}}};
    step.positions = TensorView(positions.data(), DType::i32, {chunk});
    step.row_offsets = TensorView(offsets.data(), DType::i32, {2});
    step.computed = TensorView(done.data(), DType::i32, {1});
    step.groups.push_back({.base = arena.data(),
                           .block_table = TensorView(table.data(), DType::i32, {1, blocks}),
                           .slot_mapping = TensorView(slots.data(), DType::i64, {chunk}),
                           .tokens_per_block = per_block,
                           .row_bytes = cache.row_bytes});
    const TensorView input = workspace_.alloc(GetParam(), {chunk, hidden});
    for (int64_t i = 0; i < chunk * hidden; ++i) {
      const float value = x[size_t(computed * hidden + i)];
      if (GetParam() == DType::f32) {
        input.as<float>()[i] = value;
      } else {
        input.as<bf16>()[i] = bf16(value);
      }
    }
    const StepRope step_rope{&rope, rope.table(step, exec_)};
    mla.forward(step, input, {&step_rope, 1}, TensorView(y.data() + computed * hidden, DType::f32, {chunk, hidden}),
                exec_);
  }

  Checkpoint checkpoint_;
  ThreadPool threads_;
  std::unique_ptr<Communicator> comm_;
  Workspace workspace_;
  ExecContext exec_;
};

std::vector<float> random_input(int64_t tokens) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t(tokens * hidden));
  for (float& value : x) value = normal(random);
  return x;
}

// Root mean square of the difference over that of the values.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - b[i], 2);
    size += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

TEST_P(MlaTest, BothPathsAgreeAcrossPiecesAndChunks) {
  const int64_t tokens = 1300;  // two whole pieces of 512 and a part of one
  const std::vector<float> x = random_input(tokens);
  const std::vector<float> absorbed = run(MlaPath::absorbed, {tokens}, x);
  // float32: about sqrt(k) eps for each of four products in a row (k <= 1300). bf16: W_uk and W_uv act before or after
  // a rounding to 8 bits, three roundings of 2^-9 each.
  const double tolerance = GetParam() == DType::f32 ? 4 * 36 * 6e-8 : 3 * 0x1p-9 * 2;
  EXPECT_LE(relative_error(run(MlaPath::piecewise, {tokens}, x), absorbed), tolerance);
  EXPECT_LE(relative_error(run(MlaPath::piecewise, {1, 511, 3, 700, 85}, x), absorbed), tolerance);
  EXPECT_LE(relative_error(run(MlaPath::by_shape, {1000, 1, 299}, x), absorbed), tolerance);
}

TEST_P(MlaTest, AbsorbedIsTheSameBitsInAnyChunking) {
  const std::vector<float> x = random_input(150);
  EXPECT_EQ(run(MlaPath::absorbed, {1, 6, 100, 43}, x), run(MlaPath::absorbed, {150}, x));
}

TEST_P(MlaTest, ThePathIsAFunctionOfTheRowsOwnLength) {
  // 40 (12 + 20) / (80 - 32) + 1
  EXPECT_EQ(piecewise_from(MlaPath::by_shape, false), 27);
  EXPECT_EQ(piecewise_from(MlaPath::piecewise, false), 1);
  EXPECT_GT(piecewise_from(MlaPath::absorbed, false), int64_t(1) << 40);
  EXPECT_GT(piecewise_from(MlaPath::by_shape, true), int64_t(1) << 40);
}

INSTANTIATE_TEST_SUITE_P(DTypes, MlaTest, testing::Values(DType::f32, DType::bf16));

}  // namespace
}  // namespace medley
