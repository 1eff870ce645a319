// Loading by shard: for a world of 2, the two ranks' slices of every tensor of every family make up the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "golden_model.h"
#include "models/model_source.h"
#include "models/registry.h"
#include "weights/weight_loader.h"

namespace medley {
namespace {

// A communicator that says where a rank is; loading sends nothing.
class Place : public Communicator {
 public:
  explicit Place(Shard shard) : shard_(shard) {}
  int rank() const override { return shard_.rank; }
  int size() const override { return shard_.world; }
  void all_reduce(const TensorView&) override { FAIL(); }
  void all_gather(const TensorView&, const TensorView&) override { FAIL(); }

 private:
  Shard shard_;
};

// The length of the one run of indices that both have; 0 when they share none or several.
int64_t common_run(const std::set<int64_t>& a, const std::set<int64_t>& b) {
  std::vector<int64_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  if (both.empty() || both.back() - both.front() + 1 != int64_t(both.size())) return 0;
  return int64_t(both.size());
}

class ShardTest : public testing::TestWithParam<std::filesystem::path> {
 protected:
  std::vector<TakenWeight> load(Shard shard) {
    const auto model = make_model(read_config(GetParam()), GetParam().string());
    // Over nothing for GGUF files: their tensors are small here, and a slice that cuts a block is refused.
    const bool blocks = !std::filesystem::exists(GetParam() / "config.json");
    const auto checkpoint = blocks ? nullptr : open_model(GetParam())->checkpoint();
    WeightLoader weights = blocks ? WeightLoader(shard) : WeightLoader(*checkpoint, shard);
    KernelSelector kernels(Device::cpu);
    Place comm(shard);
    ThreadPool threads(1);
    LoadContext context{weights, kernels, comm, threads};
    model->load(context, {});
    return weights.taken();
  }
};

TEST_P(ShardTest, TwoRanksSlicesMakeUpTheWhole) {
  struct Coverage {
    std::vector<int64_t> shape;
    std::map<int, std::set<int64_t>> by_rank;  // indices along the sliced dimension
    int dim = 0;
  };
  std::map<std::string, Coverage> tensors;
  int64_t split = 0;
  for (int rank = 0; rank < 2; ++rank)
    for (const TakenWeight& taken : load({rank, 2})) {
      Coverage& coverage = tensors[taken.name];
      coverage.shape = taken.shape;
      if (taken.count < taken.shape[size_t(taken.dim)]) coverage.dim = taken.dim;
      for (int64_t i = taken.begin; i < taken.begin + taken.count; ++i) coverage.by_rank[rank].insert(i);
    }
  for (const auto& [name, coverage] : tensors) {
    std::set<int64_t> all;
    for (const auto& [rank, indices] : coverage.by_rank) all.insert(indices.begin(), indices.end());
    EXPECT_EQ(int64_t(all.size()), coverage.shape[size_t(coverage.dim)]) << name;
    // Either every rank has all of it, or nobody has any part twice, except one run that serves both ranks: the B and C
    // of a Mamba2 layer's only group.
    int64_t held = 0;
    for (const auto& [rank, indices] : coverage.by_rank) held += int64_t(indices.size());
    const bool replicated = held == 2 * int64_t(all.size());
    const int64_t run = coverage.by_rank.size() == 2 ? common_run(coverage.by_rank.at(0), coverage.by_rank.at(1)) : 0;
    EXPECT_TRUE(replicated || held == int64_t(all.size()) + run) << name << ": " << held << " of " << all.size();
    split += !replicated;
  }
  EXPECT_GT(split, int64_t(tensors.size()) / 3) << "hardly anything is sharded";
}

INSTANTIATE_TEST_SUITE_P(All, ShardTest, testing::ValuesIn(golden_folders()), folder_name);

}  // namespace
}  // namespace medley
