#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "weights/weight_loader.h"

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              fmt::format("medley_{}_{}", testing::UnitTest::GetInstance()->current_test_info()->name(), ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < 12; ++i) values_[i] = float(i);
  }
  void write(const std::string& file, const std::map<std::string, TensorView>& tensors) {
    write_safetensors(folder_ / file, tensors);
  }
  void index(const std::string& map) {
    std::ofstream(folder_ / "model.safetensors.index.json") << R"({"metadata":{},"weight_map":)" << map << "}";
  }
  TensorView matrix() { return TensorView(values_, DType::f32, {4, 3}); }
  void expect_refused(const std::string& message) {
    EXPECT_THAT([&] { Checkpoint checkpoint(folder_); }, ThrowsMessage<Error>(HasSubstr(message)));
  }

  std::filesystem::path folder_;
  float values_[12];
};

TEST_F(CheckpointTest, ShardsAreOneCheckpoint) {
  write("a.safetensors", {{"x", matrix()}});
  write("b.safetensors", {{"y", matrix()}, {"z", matrix()}});
  index(R"({"x":"a.safetensors","y":"b.safetensors","z":"b.safetensors"})");
  const Checkpoint checkpoint(folder_);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.total_bytes(), 3u * 48);
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  expect_refused("has neither model.safetensors nor");
  write("a.safetensors", {{"x", matrix()}});
  index(R"({"x":"b.safetensors"})");
  expect_refused("the shard b.safetensors that model.safetensors.index.json lists is missing");
  index(R"({"x":"../a.safetensors"})");
  expect_refused("must lie in the same folder");
  index(R"({"x":"a.safetensors","y":"a.safetensors"})");
  expect_refused("lists tensor y in a.safetensors, which does not have it");
  write("b.safetensors", {{"x", matrix()}});
  index(R"({"x":"a.safetensors","w":"b.safetensors"})");
  expect_refused("tensor x is also in");
  write("b.safetensors", {{"y", matrix()}, {"w", matrix()}});
  expect_refused("tensor y is not listed");
}

TEST_F(CheckpointTest, EveryTensorIsAccountedFor) {
  write("model.safetensors", {{"x", matrix()}, {"y", matrix()}, {"rotary.inv_freq", matrix()}});
  const Checkpoint checkpoint(folder_);
  WeightLoader loader(checkpoint, {});
  EXPECT_THAT(
      [&] {
        loader.take("absent", {4, 3});
      },
      ThrowsMessage<Error>(HasSubstr("tensor absent [4, 3] is missing")));
  EXPECT_THAT(
      [&] {
        loader.take("x", {3, 4});
      },
      ThrowsMessage<Error>(HasSubstr("tensor x has shape [4, 3], config.json makes it [3, 4]")));
  loader.take("x", {4, 3});
  loader.ignore("rotary.inv_freq");
  EXPECT_THAT([&] { loader.finish(); },
              ThrowsMessage<Error>(HasSubstr("1 tensor the model does not use: y f32 [4, 3]")));
  loader.take("y", {4, 3});
  loader.finish();
}

TEST_F(CheckpointTest, AFileCutShortWhileItIsReadIsReported) {
  std::vector<float> large(1 << 18);
  write("model.safetensors", {{"x", TensorView(large.data(), DType::f32, {1 << 18})}});
  const Checkpoint checkpoint(folder_);
  std::filesystem::resize_file(folder_ / "model.safetensors", 4096);
  WeightLoader loader(checkpoint, Shard{});
  loader.take_floats("x", {1 << 18});
  EXPECT_THAT([&] { loader.finish(); },
              ThrowsMessage<Error>(HasSubstr("model.safetensors: became shorter than the 1048")));
}

TEST_F(CheckpointTest, SizesThatNoFileHasAreRefused) {
  WeightLoader plan{Shard{}};
  const auto refused = [&](const std::vector<int64_t>& shape) {
    EXPECT_THAT([&] { plan.take("x", shape); }, ThrowsMessage<Error>(HasSubstr("which no checkpoint has")));
  };
  refused({int64_t(1) << 30, int64_t(1) << 30});
  refused({0, 5});
  EXPECT_THAT([&] { plan.take_floats("x", {int64_t(1) << 30}); }, ThrowsMessage<Error>(HasSubstr("too large")));
}

TEST_F(CheckpointTest, OtherDtypesAreRefusedByTensor) {
  int64_t ids[3] = {};
  write("model.safetensors", {{"ids", TensorView(ids, DType::i64, {3})}});
  const Checkpoint checkpoint(folder_);
  WeightLoader loader(checkpoint, {});
  EXPECT_THAT([&] { loader.take("ids", {3}); }, ThrowsMessage<Error>(HasSubstr("tensor ids is I64; medley reads")));
}

TEST_F(CheckpointTest, SlicesOfAWorld) {
  write("model.safetensors", {{"x", matrix()}});
  const Checkpoint checkpoint(folder_);
  WeightLoader first(checkpoint, {0, 2}), second(checkpoint, {1, 2});
  EXPECT_THAT(first.take_floats("x", {4, 3}, {.dim = 0, .units = 4}), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(second.take_floats("x", {4, 3}, {.dim = 0, .units = 4}), ElementsAre(6, 7, 8, 9, 10, 11));
  // Three columns over two ranks: one and two.
  EXPECT_THAT(first.take_floats("x", {4, 3}, {.dim = 1, .units = 3}), ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(second.take_floats("x", {4, 3}, {.dim = 1, .units = 3}), ElementsAre(1, 2, 4, 5, 7, 8, 10, 11));
  // The lower half of the rows, shared out.
  EXPECT_THAT(second.take_floats("x", {4, 3}, {.dim = 0, .begin = 2, .count = 2, .units = 2}), ElementsAre(9, 10, 11));
  EXPECT_THAT(
      [&] {
        WeightLoader(checkpoint, {0, 5}).take("x", {4, 3}, {.dim = 0, .units = 4});
      },
      ThrowsMessage<Error>(HasSubstr("use fewer ranks")));
}

}  // namespace
}  // namespace medley
