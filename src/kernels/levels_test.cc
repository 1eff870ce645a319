// Which implementation really runs on this machine: a kernel that silently fell back to a lower level would pass every
// other test.
#include <gmock/gmock.h>

#include "kernels/attention.h"
#include "kernels/cpu.h"
#include "kernels/linear.h"
#include "kernels/moe.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/rope.h"
#include "kernels/state_space.h"
#include "kernels/test_tensors.h"

namespace medley {
namespace {

using namespace test;

template <class Desc, class Args>
std::string chosen(const Op<Desc, Args>& op, const Desc& desc, Level highest) {
  return std::string(KernelSelector(Device::cpu, highest).resolve(op, desc).name);
}

TEST(Levels, LinearTakesTheWidestInstructionsThereAre) {
  const LinearDesc mixed{256, 256, DType::f32, DType::bf16}, bf16s{256, 256, DType::bf16, DType::bf16};
  const std::string dots = cpu::has_avx512_bf16() ? "avx512" : "simd";
  EXPECT_EQ(chosen(linear_op(), bf16s, Level::avx512), dots + ".linear");
  EXPECT_EQ(chosen(grouped_linear_op(), {bf16s, 8}, Level::avx512), dots + ".grouped_linear");
  EXPECT_EQ(chosen(headwise_linear_op(), {bf16s, 8}, Level::avx512), dots + ".headwise_linear");
  EXPECT_EQ(chosen(headwise_linear_op(), {mixed, 8}, Level::avx512), "simd.headwise_linear");
  EXPECT_EQ(chosen(linear_op(), mixed, Level::avx512), "simd.linear");
  EXPECT_EQ(chosen(grouped_linear_op(), {mixed, 8}, Level::avx512), "simd.grouped_linear");
  EXPECT_EQ(chosen(linear_op(), bf16s, Level::simd), "simd.linear");
  EXPECT_EQ(chosen(linear_op(), mixed, Level::ref), "ref.linear");
}

TEST(Levels, BlockWeightsTakeThemToo) {
  const std::string dots = cpu::has_avx512_bf16() ? "avx512" : "simd";
  for (DType type : block_types) {
    const LinearDesc mixed{256, 256, DType::f32, type}, bf16s{256, 256, DType::bf16, type};
    EXPECT_EQ(chosen(linear_op(), bf16s, Level::avx512), dots + ".linear");
    EXPECT_EQ(chosen(grouped_linear_op(), {bf16s, 8}, Level::avx512), dots + ".grouped_linear");
    EXPECT_EQ(chosen(headwise_linear_op(), {bf16s, 8}, Level::avx512), dots + ".headwise_linear");
    EXPECT_EQ(chosen(linear_op(), mixed, Level::avx512), "simd.linear");
    EXPECT_EQ(chosen(embedding_op(), EmbeddingDesc{256, type}, Level::avx512), "ref.embedding");
  }
}

TEST(Levels, TheOtherOpsTakeHighway) {
  const Level best = Level::avx512;
  EXPECT_EQ(chosen(paged_attention_op(), PagedAttentionDesc{16, 1, 576, 512}, best), "simd.paged_attention");
  EXPECT_EQ(chosen(piece_attention_op(), PieceAttentionDesc{16, 128, 64, 128}, best), "simd.piece_attention");
  EXPECT_EQ(chosen(causal_conv_op(), CausalConvDesc{8192, 4}, best), "simd.causal_conv1d");
  EXPECT_EQ(chosen(selective_scan_op(), SelectiveScanDesc{8192, 16}, best), "simd.selective_scan");
  EXPECT_EQ(chosen(ssd_scan_op(), SsdScanDesc{80, 64, 128, 1}, best), "simd.ssd_scan");
  EXPECT_EQ(chosen(rms_norm_op(), RmsNormDesc{4096}, best), "simd.rms_norm");
  EXPECT_EQ(chosen(gated_activation_op(), GatedActivationDesc{1024}, best), "simd.gated_activation");
  EXPECT_EQ(chosen(rope_op(), RopeDesc{64}, best), "simd.rope");
  EXPECT_EQ(chosen(convert_rows_op(), ConvertRowsDesc{}, best), "simd.convert_rows");
  EXPECT_EQ(chosen(add_op(), AddDesc{}, best), "simd.add");
  EXPECT_EQ(chosen(weighted_sum_op(), WeightedSumDesc{1024}, best), "simd.weighted_sum");
  EXPECT_EQ(chosen(embedding_op(), EmbeddingDesc{1024}, best), "simd.embedding");
  // What they do not take falls to ref/.
  EXPECT_EQ(chosen(gated_activation_op(), GatedActivationDesc{1024, Activation::gelu}, best), "ref.gated_activation");
  EXPECT_EQ(chosen(causal_conv_op(), CausalConvDesc{8192, 5}, best), "ref.causal_conv1d");
}

// The tests of level simd really cover one instruction set after another.
TEST(Levels, SimdIsTestedOncePerInstructionSet) {
  std::vector<std::string> names;
  for (const auto& kernel : runnable(linear_op(), LinearDesc{8, 8, DType::f32, DType::f32})) {
    names.push_back(kernel.name());
    EXPECT_EQ((*kernel).level, kernel.implementation->level);
    if (kernel.target != 0) {
      EXPECT_EQ(hwy::SupportedTargets(), kernel.target);
    }
  }
#if defined(__x86_64__)
  EXPECT_THAT(names, testing::Contains("simd.linear/SSE4"));
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    EXPECT_THAT(names, testing::Contains("simd.linear/AVX2"));
  }
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    EXPECT_THAT(names, testing::Contains("simd.linear/AVX3"));
  }
#endif
}

}  // namespace
}  // namespace medley
